#include "kernels/gradient.h"

#include <cmath>
#include <limits>

namespace trainyard::kernels::reference {

template <typename T>
void gradient_norm(const GradientNormParams& s, const GradientNormOperands<T>& o, Run<T>) {
  check(s, o);
  double sum = 0;
  for (size_t k = 0; k < s.counts.size(); ++k) {
    const T* values = o.g[k];
    for (int64_t i = 0; i < s.counts[k]; ++i) {
      sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
    }
  }
  const double by = o.loss_scale == nullptr ? 1 : static_cast<double>(*o.loss_scale);
  const double root = std::sqrt(sum) / by;
  *o.norm = static_cast<T>(root);
  if (o.scale != nullptr) *o.scale = static_cast<T>(math::clip_scale(root, s.max_norm) / by);
}

template <typename T>
void clip_gradient(const ClipGradientParams& s, const ClipGradientOperands<T>& o, Run<T>) {
  check(s, o);
  const T bound = s.bound == 0 ? std::numeric_limits<T>::infinity() : static_cast<T>(s.bound);
  const T factor = o.scale == nullptr ? T(1) : *o.scale;
  for (int64_t i = 0; i < s.count; ++i) o.y[i] = math::clip_gradient(o.g[i], factor, bound);
}

template <typename T>
void accumulate_gradient(const AccumulateGradientParams& s, const AccumulateGradientOperands<T>& o,
                         Run<T>) {
  check(s, o);
  for (int64_t i = 0; i < s.count; ++i) {
    o.sum[i] = static_cast<T>(s.share) * o.g[i] + (*o.micro_step == 0 ? T(0) : o.sum[i]);
  }
}

template <typename T>
void loss_scale_update(const math::LossScaling& s, const T* norm, const float* learning_rate,
                       LossScale<T> kept, LossScaleStep<T> step, Run<T>) {
  check(norm, learning_rate, kept, step);
  update_loss_scale(s, *norm, *learning_rate, kept, step);
}

#define TRAINYARD_INSTANTIATE(T)                                                            \
  template void gradient_norm<T>(const GradientNormParams&, const GradientNormOperands<T>&, \
                                 Run<T>);                                                   \
  template void loss_scale_update<T>(const math::LossScaling&, const T*, const float*,      \
                                     LossScale<T>, LossScaleStep<T>, Run<T>);               \
  template void clip_gradient<T>(const ClipGradientParams&, const ClipGradientOperands<T>&, \
                                 Run<T>);                                                   \
  template void accumulate_gradient<T>(const AccumulateGradientParams&,                     \
                                       const AccumulateGradientOperands<T>&, Run<T>);
TRAINYARD_INSTANTIATE(float)
TRAINYARD_INSTANTIATE(double)

}  // namespace trainyard::kernels::reference
