#include "kernels/pointwise_loss.h"

namespace trainyard::kernels::reference {

template <typename F, typename T, typename Target>
void pointwise_loss(const F& f, int64_t count, const PointwiseLossOperands<T, Target>& o, Run<T>) {
  check(count, o);
  double total = 0;
  for (int64_t i = 0; i < count; ++i) {
    total += static_cast<double>(f.f(o.y[i], static_cast<T>(o.t[i])));
  }
  *o.loss = static_cast<T>(total / static_cast<double>(count));
}

template <typename F, typename T, typename Target>
void pointwise_loss_grad(const F& f, int64_t count, const PointwiseLossGradOperands<T, Target>& o,
                         Run<T>) {
  check(count, o);
  const T scale = *o.dloss / static_cast<T>(count);
  for (int64_t i = 0; i < count; ++i) o.dy[i] = scale * f.df(o.y[i], static_cast<T>(o.t[i]));
}

#define TRAINYARD_INSTANTIATE_FOR(F, T, Target)                                  \
  template void pointwise_loss<math::F, T, Target>(                              \
      const math::F&, int64_t, const PointwiseLossOperands<T, Target>&, Run<T>); \
  template void pointwise_loss_grad<math::F, T, Target>(                         \
      const math::F&, int64_t, const PointwiseLossGradOperands<T, Target>&, Run<T>);
#define TRAINYARD_INSTANTIATE(F)               \
  TRAINYARD_INSTANTIATE_FOR(F, float, float)   \
  TRAINYARD_INSTANTIATE_FOR(F, double, double) \
  TRAINYARD_INSTANTIATE_FOR(F, float, int32_t) \
  TRAINYARD_INSTANTIATE_FOR(F, double, int32_t)
TRAINYARD_FOR_EACH_POINTWISE_LOSS(TRAINYARD_INSTANTIATE)
#undef TRAINYARD_INSTANTIATE
#undef TRAINYARD_INSTANTIATE_FOR

}  // namespace trainyard::kernels::reference
