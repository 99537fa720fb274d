#include "kernels/gradient.h"

#include <limits>

#include "kernels/shard.h"

namespace trainyard::kernels::reference {

namespace {

template <typename T>
void add_squares(const T* values, int64_t count, double& sum) {
  for (int64_t i = 0; i < count; ++i) {
    sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
}

}  // namespace

template <typename T>
void gradient_norm(const GradientNormParams& s, const GradientNormOperands<T>& o, Run<T>) {
  check(s, o);
  const double share = 1.0 / static_cast<double>(s.ranks);
  double mean = 0;
  for (int64_t rank = 0; rank < s.ranks; ++rank) {
    double sum = 0;
    for (size_t k = 0; k < s.counts.size(); ++k) {
      const ShardRange shard = shard_range(s.counts[k], rank, s.ranks);
      add_squares(o.g[k] + shard.first, shard.count, sum);
    }
    mean += sum * share;
  }
  set_norm(mean, s.ranks, s.max_norm, o.loss_scale, o.norm, o.scale);
}

template <typename T>
void gradient_squares(const GradientSquaresParams& s, const GradientSquaresOperands<T>& o, Run<T>) {
  check(s, o);
  double sum = 0;
  for (size_t k = 0; k < s.counts.size(); ++k) add_squares(o.g[k], s.counts[k], sum);
  *o.squares = sum;
}

template <typename T>
void norm_of_squares(const NormOfSquaresParams& s, const NormOfSquaresOperands<T>& o, Run<T>) {
  check(s, o);
  set_norm(*o.mean, s.ranks, s.max_norm, o.loss_scale, o.norm, o.scale);
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

#define TRAINYARD_INSTANTIATE(T)                                                                \
  template void gradient_norm<T>(const GradientNormParams&, const GradientNormOperands<T>&,     \
                                 Run<T>);                                                       \
  template void gradient_squares<T>(const GradientSquaresParams&,                               \
                                    const GradientSquaresOperands<T>&, Run<T>);                 \
  template void norm_of_squares<T>(const NormOfSquaresParams&, const NormOfSquaresOperands<T>&, \
                                   Run<T>);                                                     \
  template void loss_scale_update<T>(const math::LossScaling&, const T*, const float*,          \
                                     LossScale<T>, LossScaleStep<T>, Run<T>);                   \
  template void clip_gradient<T>(const ClipGradientParams&, const ClipGradientOperands<T>&,     \
                                 Run<T>);                                                       \
  template void accumulate_gradient<T>(const AccumulateGradientParams&,                         \
                                       const AccumulateGradientOperands<T>&, Run<T>);
TRAINYARD_INSTANTIATE(float)
TRAINYARD_INSTANTIATE(double)
#undef TRAINYARD_INSTANTIATE

}  // namespace trainyard::kernels::reference
