#include "kernels/activation.h"

namespace trainyard::kernels::reference {

template <typename F, typename T>
void activation_forward(int64_t count, const T* x, T* y) {
  for (int64_t i = 0; i < count; ++i) y[i] = F::f(x[i]);
}

template <typename F, typename T>
void activation_backward(int64_t count, const T* saved, const T* dy, T* dx) {
  for (int64_t i = 0; i < count; ++i) dx[i] = F::df(saved[i], dy[i]);
}

#define TRAINYARD_INSTANTIATE(F, T)                                    \
  template void activation_forward<math::F, T>(int64_t, const T*, T*); \
  template void activation_backward<math::F, T>(int64_t, const T*, const T*, T*);
#define TRAINYARD_INSTANTIATE_BOTH(F) \
  TRAINYARD_INSTANTIATE(F, float)     \
  TRAINYARD_INSTANTIATE(F, double)
TRAINYARD_INSTANTIATE_BOTH(Relu)
TRAINYARD_INSTANTIATE_BOTH(Sigmoid)
TRAINYARD_INSTANTIATE_BOTH(Tanh)
TRAINYARD_INSTANTIATE_BOTH(GeluErf)
TRAINYARD_INSTANTIATE_BOTH(GeluTanh)

}  // namespace trainyard::kernels::reference
