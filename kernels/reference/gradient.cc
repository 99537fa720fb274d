#include "kernels/gradient.h"

#include <cmath>
#include <limits>

namespace trainyard::kernels::reference {

template <typename T>
void gradient_norm(const GradientNormParams& s, std::span<const void* const> g, const T* loss_scale,
                   T* norm, T* scale) {
  double sum = 0;
  for (size_t k = 0; k < s.counts.size(); ++k) {
    const T* values = static_cast<const T*>(g[k]);
    for (int64_t i = 0; i < s.counts[k]; ++i) {
      sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
    }
  }
  const double by = loss_scale == nullptr ? 1 : static_cast<double>(*loss_scale);
  const double root = std::sqrt(sum) / by;
  *norm = static_cast<T>(root);
  if (scale != nullptr) *scale = static_cast<T>(math::clip_scale(root, s.max_norm) / by);
}

template <typename T>
void clip_gradient(const ClipGradientParams& s, const T* g, const T* scale, T* y) {
  const T bound = s.bound == 0 ? std::numeric_limits<T>::infinity() : static_cast<T>(s.bound);
  const T factor = scale == nullptr ? T(1) : *scale;
  for (int64_t i = 0; i < s.count; ++i) y[i] = math::clip_gradient(g[i], factor, bound);
}

template <typename T>
void accumulate_gradient(int64_t count, double share, const T* g, const int64_t* micro_step,
                         T* sum) {
  for (int64_t i = 0; i < count; ++i) {
    sum[i] = static_cast<T>(share) * g[i] + (*micro_step == 0 ? T(0) : sum[i]);
  }
}

template <typename T>
void loss_scale_update(const math::LossScaling& s, const T* norm, const float* learning_rate,
                       LossScale<T> kept, LossScaleStep<T> step) {
  update_loss_scale(s, *norm, *learning_rate, kept, step);
}

#define TRAINYARD_INSTANTIATE(T)                                                          \
  template void gradient_norm<T>(const GradientNormParams&, std::span<const void* const>, \
                                 const T*, T*, T*);                                       \
  template void loss_scale_update<T>(const math::LossScaling&, const T*, const float*,    \
                                     LossScale<T>, LossScaleStep<T>);                     \
  template void clip_gradient<T>(const ClipGradientParams&, const T*, const T*, T*);      \
  template void accumulate_gradient<T>(int64_t, double, const T*, const int64_t*, T*);
TRAINYARD_INSTANTIATE(float)
TRAINYARD_INSTANTIATE(double)

}  // namespace trainyard::kernels::reference
