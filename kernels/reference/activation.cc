#include "kernels/activation.h"

namespace trainyard::kernels::reference {

template <typename F, typename T>
void activation_forward(int64_t count, const T* x, T* y, Run<T>, const F& f) {
  check_activation(count, x, y);
  for (int64_t i = 0; i < count; ++i) y[i] = f.f(x[i]);
}

template <typename F, typename T>
void activation_backward(int64_t count, const T* saved, const T* dy, T* dx, Run<T>, const F& f) {
  check_activation(count, saved, dy, dx);
  for (int64_t i = 0; i < count; ++i) dx[i] = f.df(saved[i], dy[i]);
}

#define TRAINYARD_INSTANTIATE_FOR(F, T)                                                        \
  template void activation_forward<math::F, T>(int64_t, const T*, T*, Run<T>, const math::F&); \
  template void activation_backward<math::F, T>(int64_t, const T*, const T*, T*, Run<T>,       \
                                                const math::F&);
#define TRAINYARD_INSTANTIATE(F)      \
  TRAINYARD_INSTANTIATE_FOR(F, float) \
  TRAINYARD_INSTANTIATE_FOR(F, double)
TRAINYARD_FOR_EACH_ACTIVATION(TRAINYARD_INSTANTIATE)
#undef TRAINYARD_INSTANTIATE
#undef TRAINYARD_INSTANTIATE_FOR

}  // namespace trainyard::kernels::reference
