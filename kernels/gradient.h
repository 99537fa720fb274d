// kernels/gradient.h: processing of parameter gradients between backward and the optimizer: norm,
// clipping, loss scaling, accumulation.
//
//   norm   = sqrt(sum over all tensors of g^2)
//            With several ranks, `squares` is the sum over one rank's shards (kernels/shard.h), and
//            norm = sqrt(ranks * mean), mean = (sum of all `squares` in rank order) / ranks.
//   scale  = min(1, max_norm / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_
//            With a loss scale L the gradients are L times too large: norm is that of g / L, and
//            scale also divides by L.
//   clip   y = g scale, clamped to [-bound, bound] (kernels/math/optimizers.h)
//   loss scale   the scale of the next step depends on whether this step's norm is finite. If it is
//            not, the learning rate becomes NaN and the step is not counted
//            (kernels/math/optimizers.h)
//   accumulate  sum = share g in the first micro-batch, sum + share g in the others
//
/// Shapes    norm, scale, micro_step, loss_scale and each member of LossScale and LossScaleStep are
///           single numbers in device memory.
/// Writes    all operands that are not const; sum and the members of LossScale are updated.
/// Aliasing  clip: y may be g.
/// Numerics  squares are summed in double, over fixed blocks in a fixed order: bit-identical for
///           any team size. On the host, gradient_norm with `ranks` gives the same bits as
///           gradient_squares on each rank followed by norm_of_squares; cuda sums all squares
///           together.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "kernels/contract.h"
#include "kernels/math/host_device.h"
#include "kernels/math/optimizers.h"
#include "kernels/operands.h"

namespace trainyard::kernels {

struct GradientNormParams {
  std::vector<int64_t> counts;  // elements of each tensor
  double max_norm = 0;          // 0: no clipping
  bool scaled = false;          // whether gradients are multiplied by a loss scale
  int64_t ranks = 1;            // squares are summed separately for the shards of this many ranks
};

/// Describes one rank's shards.
struct GradientSquaresParams {
  std::vector<int64_t> counts;  // elements of each tensor; 0: the rank has no part of it
};

struct NormOfSquaresParams {
  double max_norm = 0;  // 0: no clipping
  int64_t ranks = 1;
};

/// State that is kept from step to step.
template <typename T>
struct LossScale {
  T* scale;
  int64_t* good_steps;  // steps since the scale changed or a step was skipped
  int64_t* updates;     // steps that were not skipped
};
/// The values that loss scaling sets for one step.
template <typename T>
struct LossScaleStep {
  float* learning_rate;  // NaN: the step is skipped
  int64_t* step;         // number of this step among those not skipped, from 0
  T* scale;              // loss scale of this step's gradients
};

/// Decides from a step's norm whether the step is taken, and updates the scale of the next step.
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
  double bound;  // 0: no clamping
};

struct AccumulateGradientParams {
  int64_t count;
  double share;  // weight of this micro-batch in the step's mean
};

template <typename T>
struct GradientNormOperands {
  std::span<const InOf<T>> g;     // [counts[k]] each
  const NumberOf<T>* loss_scale;  // nullptr: 1
  NumberOf<T>* norm;
  NumberOf<T>* scale;  // optional
};

template <typename T>
struct GradientSquaresOperands {
  std::span<const InOf<T>> g;  // [counts[k]] each
  double* squares;
};

template <typename T>
struct NormOfSquaresOperands {
  const double* mean;
  const NumberOf<T>* loss_scale;  // nullptr: 1
  NumberOf<T>* norm;
  NumberOf<T>* scale;  // optional
};

/// Computes norm and scale; `mean` is the mean over `ranks` of their sums of squares.
template <typename T>
TRAINYARD_HD inline void set_norm(double mean, int64_t ranks, double max_norm, const T* loss_scale,
                                  T* norm, T* scale) {
  const double by = loss_scale == nullptr ? 1 : static_cast<double>(*loss_scale);
  const double root = std::sqrt(mean * static_cast<double>(ranks)) / by;
  *norm = static_cast<T>(root);
  if (scale != nullptr) *scale = static_cast<T>(math::clip_scale(root, max_norm) / by);
}

template <typename T>
struct ClipGradientOperands {
  InOf<T> g;                 // [count]
  const NumberOf<T>* scale;  // nullptr: 1
  OutOf<T> y;                // [count]
};

template <typename T>
struct AccumulateGradientOperands {
  InOf<T> g;  // [count]
  const int64_t* micro_step;
  NumberOf<T>* sum;  // [count]
};

template <typename T>
void check(const GradientNormParams& s, const GradientNormOperands<T>& o) {
  const Contract contract("gradient_norm");
  contract.holds(o.g.size() == s.counts.size(), "g", "are not as many as counts")
      .holds(!s.scaled || o.loss_scale != nullptr, "loss_scale", "is missing")
      .given("norm", o.norm);
  for (size_t k = 0; k < o.g.size(); ++k)
    contract.holds(s.counts[k] == 0 || o.g[k], "g", "is missing");
}
template <typename T>
void check(const GradientSquaresParams& s, const GradientSquaresOperands<T>& o) {
  const Contract contract("gradient_squares");
  contract.holds(o.g.size() == s.counts.size(), "g", "are not as many as counts")
      .given("squares", o.squares);
  for (size_t k = 0; k < o.g.size(); ++k)
    contract.holds(s.counts[k] == 0 || o.g[k], "g", "is missing");
}
template <typename T>
void check(const NormOfSquaresParams& s, const NormOfSquaresOperands<T>& o) {
  Contract("norm_of_squares").size("ranks", s.ranks).given("mean", o.mean).given("norm", o.norm);
}
template <typename T>
void check(const ClipGradientParams& s, const ClipGradientOperands<T>& o) {
  Contract("clip_gradient").size("count", s.count).given("g", o.g).given("y", o.y);
}
template <typename T>
void check(const AccumulateGradientParams& s, const AccumulateGradientOperands<T>& o) {
  Contract("accumulate_gradient")
      .size("count", s.count)
      .given("g", o.g)
      .given("micro_step", o.micro_step)
      .given("sum", o.sum);
}
template <typename T>
void check(const T* norm, const float* learning_rate, const LossScale<T>& kept,
           const LossScaleStep<T>& step) {
  Contract("loss_scale_update")
      .given("norm", norm)
      .given("learning_rate", learning_rate)
      .given("kept.scale", kept.scale)
      .given("kept.good_steps", kept.good_steps)
      .given("kept.updates", kept.updates)
      .given("step.learning_rate", step.learning_rate)
      .given("step.step", step.step)
      .given("step.scale", step.scale);
}

namespace reference {  // T is float or double
template <typename T>
void gradient_norm(const GradientNormParams& s, const GradientNormOperands<T>& o, Run<T> run = {});
template <typename T>
void gradient_squares(const GradientSquaresParams& s, const GradientSquaresOperands<T>& o,
                      Run<T> run = {});
template <typename T>
void norm_of_squares(const NormOfSquaresParams& s, const NormOfSquaresOperands<T>& o,
                     Run<T> run = {});
template <typename T>
void clip_gradient(const ClipGradientParams& s, const ClipGradientOperands<T>& o, Run<T> run = {});
template <typename T>
void accumulate_gradient(const AccumulateGradientParams& s, const AccumulateGradientOperands<T>& o,
                         Run<T> run = {});
template <typename T>
void loss_scale_update(const math::LossScaling& s, const T* norm, const float* learning_rate,
                       LossScale<T> kept, LossScaleStep<T> step, Run<T> run = {});
}  // namespace reference

namespace cpu {
int64_t gradient_norm_workspace_bytes(const GradientNormParams& s);
void gradient_norm(const GradientNormParams& s, const GradientNormOperands<float>& o, Run run);
int64_t gradient_squares_workspace_bytes(const GradientSquaresParams& s);
void gradient_squares(const GradientSquaresParams& s, const GradientSquaresOperands<float>& o,
                      Run run);
void norm_of_squares(const NormOfSquaresParams& s, const NormOfSquaresOperands<float>& o, Run run);
void clip_gradient(const ClipGradientParams& s, const ClipGradientOperands<float>& o, Run run);
void accumulate_gradient(const AccumulateGradientParams& s,
                         const AccumulateGradientOperands<float>& o, Run run);
void loss_scale_update(const math::LossScaling& s, const float* norm, const float* learning_rate,
                       LossScale<float> kept, LossScaleStep<float> step, Run run);
}  // namespace cpu

/// Clipping and accumulating are in kernels/cuda/updates.h.
namespace cuda {
int64_t gradient_norm_workspace_bytes(const GradientNormParams& s);
void gradient_norm(const GradientNormParams& s, const GradientNormOperands<Views>& o, Run run);
int64_t gradient_squares_workspace_bytes(const GradientSquaresParams& s);
void gradient_squares(const GradientSquaresParams& s, const GradientSquaresOperands<Views>& o,
                      Run run);
void norm_of_squares(const NormOfSquaresParams& s, const NormOfSquaresOperands<Views>& o, Run run);
void loss_scale_update(const math::LossScaling& s, const float* norm, const float* learning_rate,
                       LossScale<float> kept, LossScaleStep<float> step, Run run);
}  // namespace cuda

}  // namespace trainyard::kernels
