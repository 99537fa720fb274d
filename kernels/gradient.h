// kernels/gradient.h: what is done to parameter gradients between backward and the update.
//
//   norm   = sqrt(sum over all tensors of g^2)
//   scale  = min(1, max_norm / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_
//            With a loss scale L the gradients are L times too large: norm is that of g / L, and
//            scale divides by L too.
//   clip   y = g scale, cut to [-bound, bound] (kernels/math/optimizers.h)
//   loss scale   for the next step, by whether this one's norm is finite; where it is not, the
//            learning rate becomes NaN and the step is not counted (kernels/math/optimizers.h)
//   accumulate  sum = share g for the first micro-batch, else sum + share g
//
/// Shapes    each tensor `count` elements; norm, scale, micro_step, loss_scale (null: 1) and all of
///           LossScale and LossScaleStep one number in device memory.
/// Writes    norm, scale unless it is null, y, sum; all of LossScaleStep. Updates all of LossScale.
/// Aliasing  clip: y may be g.
/// Numerics  squares are summed in double, over fixed blocks in a fixed order: the same bits for a
///           team of any size.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "kernels/cuda/view.h"
#include "kernels/math/host_device.h"
#include "kernels/math/optimizers.h"

namespace trainyard::kernels {

struct GradientNormParams {
  std::vector<int64_t> counts;  // by tensor
  double max_norm = 0;          // 0: nothing is clipped
  bool scaled = false;          // by a loss scale
};

/// Kept from step to step.
template <typename T>
struct LossScale {
  T* scale;
  int64_t* good_steps;  // since the scale changed, or a step was not taken
  int64_t* updates;     // steps that were taken
};
/// Of one step.
template <typename T>
struct LossScaleStep {
  float* learning_rate;  // NaN: the step is not taken
  int64_t* step;         // of those that are taken, from 0
  T* scale;              // that its gradients have
};

/// What a step's norm says of it, and of the next one's scale.
template <typename T>
TRAINYARD_HD inline void update_loss_scale(const math::LossScaling& s, T norm, float learning_rate,
                                           const LossScale<T>& kept, const LossScaleStep<T>& step) {
  *step.scale = *kept.scale;
  *step.step = *kept.updates;
  const bool taken = math::adapt_loss_scale(s, norm, *kept.scale, *kept.good_steps);
  *step.learning_rate = taken ? learning_rate : std::numeric_limits<float>::quiet_NaN();
  if (taken) ++*kept.updates;
}

struct ClipGradientParams {
  int64_t count;
  double bound;  // 0: none
};

namespace reference {  // T is float or double
template <typename T>
void gradient_norm(const GradientNormParams& s, std::span<const void* const> g, const T* loss_scale,
                   T* norm, T* scale);
template <typename T>
void clip_gradient(const ClipGradientParams& s, const T* g, const T* scale, T* y);
template <typename T>
void accumulate_gradient(int64_t count, double share, const T* g, const int64_t* micro_step,
                         T* sum);
/// Also the cpu backend's.
template <typename T>
void loss_scale_update(const math::LossScaling& s, const T* norm, const float* learning_rate,
                       LossScale<T> kept, LossScaleStep<T> step);
}  // namespace reference

namespace cpu {
class Team;  // kernels/cpu/team.h
int64_t gradient_norm_workspace_bytes(const GradientNormParams& s);
void gradient_norm(const GradientNormParams& s, std::span<const void* const> g,
                   const float* loss_scale, float* norm, float* scale, void* workspace, Team& team);
void clip_gradient(const ClipGradientParams& s, const float* g, const float* scale, float* y,
                   Team& team);
void accumulate_gradient(int64_t count, double share, const float* g, const int64_t* micro_step,
                         float* sum, Team& team);
}  // namespace cpu

/// Asynchronous on `stream`; a launch that failed is told by cudaPeekAtLastError(). Clipping and
/// accumulating: kernels/cuda/updates.h.
namespace cuda {
int64_t gradient_norm_workspace_bytes(const GradientNormParams& s);
void gradient_norm(const GradientNormParams& s, std::span<const In> g, const float* loss_scale,
                   float* norm, float* scale, void* workspace, CUstream_st* stream);
void loss_scale_update(const math::LossScaling& s, const float* norm, const float* learning_rate,
                       LossScale<float> kept, LossScaleStep<float> step, CUstream_st* stream);
}  // namespace cuda

}  // namespace trainyard::kernels
