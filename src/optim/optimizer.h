// src/optim/optimizer.h: optimizers and learning-rate schedules as data, and as graph nodes.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/field_rows.h"
#include "src/base/fields.h"
#include "src/base/result.h"
#include "src/graph/graph.h"
#include "src/optim/sharding.h"

namespace trainyard {

inline constexpr double kLearningRateMax = 1e6;
inline constexpr double kScheduleStepsMax = 0x1p40;

/// Names, defaults and formulas are those of PyTorch's torch.optim if it has the optimizer
/// (docs/optimizers.md). field_rows() lists which optimizer types use a field.
struct OptimizerSpec {
  std::string type = "sgd";
  double learning_rate = 0.01;
  double momentum = 0;
  bool nesterov = false;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double weight_decay = 0;  // sgd, adam, rmsprop: added to the gradient; others: decoupled
  std::string weight_decay_on =
      "all";                        // or "matrices": excludes biases, normalization and embeddings
  double alpha = 0.99;              // rmsprop: weight of the old mean of squares
  bool centered = false;            // rmsprop: subtract the squared mean gradient
  double beta2_decay = -0.8;        // adafactor
  double clip_threshold = 1;        // adafactor: largest root mean square of an update
  double scale_min = 1e-3;          // adafactor: least root mean square of a parameter
  int64_t newton_schulz_steps = 5;  // muon
  std::string adjust_rate = "original";  // muon: or "match_rms_adamw"
  double fallback_learning_rate = 0;     // muon: rate of AdamW's parameters; 0: learning_rate
};
inline const std::vector<FieldRow<OptimizerSpec>>& field_rows(const OptimizerSpec&) {
  using S = OptimizerSpec;
  const FieldNames types = {"sgd", "adam", "adamw", "rmsprop", "lion", "adafactor", "muon"};
  const FieldNames with_momentum = {"sgd", "rmsprop", "muon"};
  const FieldNames adams = {"adam", "adamw", "lion", "muon"};
  const FieldNames dividers = {"adam", "adamw", "rmsprop", "adafactor", "muon"};
  const FieldNames sgd_muon = {"sgd", "muon"}, rmsprop = {"rmsprop"}, adafactor = {"adafactor"},
                   muon = {"muon"};
  static const std::vector<FieldRow<S>> rows = {
      {"type", &S::type, "This rule turns gradients into new weights.", kAnyValue, 0, {}, types},
      {"learning_rate", &S::learning_rate,
       "This number scales each update, and the schedule changes it.", above(0, kLearningRateMax),
       kRequired | kForks | kPlanIgnores},
      {"momentum", &S::momentum, "A step keeps this share of the earlier updates.", below(0, 1),
       kForksAboveZero | kPlanIgnores, with_momentum},
      {"nesterov", &S::nesterov, "Momentum, which must be above 0, takes Nesterov's form.",
       kAnyValue, kForks, sgd_muon},
      {"beta1", &S::beta1, "A step keeps this share of the average of gradients.", below(0, 1),
       kForks | kPlanIgnores, adams},
      {"beta2", &S::beta2,
       "A step keeps this share of the average of squares; with lion, of gradients.", below(0, 1),
       kForks | kPlanIgnores, adams},
      {"epsilon", &S::epsilon, "This number keeps denominators away from 0.", above(0, 1),
       kForks | kPlanIgnores, dividers},
      {"weight_decay", &S::weight_decay, "Weights are pulled toward 0 with this strength.",
       from_to(0, kLearningRateMax), kForks | kPlanIgnores},
      {"weight_decay_on",
       &S::weight_decay_on,
       "With `matrices`, biases, normalization and embeddings do not decay.",
       kAnyValue,
       kForks,
       {},
       {"all", "matrices"}},
      {"alpha", &S::alpha, "A step keeps this share of the average of squares.", below(0, 1),
       kForks | kPlanIgnores, rmsprop},
      {"centered", &S::centered, "Updates are divided by the deviation of the gradient.", kAnyValue,
       0, rmsprop},
      {"beta2_decay", &S::beta2_decay, "Step t takes the share t^beta2_decay of the new squares.",
       from_to(-1, 0), kForks | kPlanIgnores, adafactor},
      {"clip_threshold", &S::clip_threshold,
       "Updates with a larger root mean square are scaled down to it.", from_to(1, 1e6),
       kForks | kPlanIgnores, adafactor},
      {"scale_min", &S::scale_min,
       "Updates are scaled by a parameter's root mean square, or by this if it is larger.",
       above(0, 1), kForks | kPlanIgnores, adafactor},
      {"newton_schulz_steps", &S::newton_schulz_steps, "This many steps make an update orthogonal.",
       from_to(1, 99), kForks, muon},
      {"adjust_rate",
       &S::adjust_rate,
       "`match_rms_adamw` makes the learning rates of AdamW suitable.",
       kAnyValue,
       kForks,
       muon,
       {"original", "match_rms_adamw"}},
      {"fallback_learning_rate", &S::fallback_learning_rate,
       "The parameters that AdamW trains have this rate, by default `learning_rate`.",
       above(0, kLearningRateMax), kOffAtZero | kForks | kPlanIgnores, muon},
  };
  return rows;
}
template <FieldsOf<OptimizerSpec> Spec>
void visit_fields(Spec& spec, auto&& visit) {
  visit_rows(spec, visit);
}

/// Returns the spec of a type with the defaults of that type, which differ (muon's momentum is
/// 0.95). An unknown type gets the defaults of sgd; check_optimizer() refuses it.
OptimizerSpec default_optimizer(std::string_view type);

std::span<const std::string> optimizer_types();
std::span<const std::string> schedule_types();

struct ScheduleSpec {
  std::string type = "constant";
  // Steps before the schedule begins. Warm-up step s, counted from 0, has the rate first * (s + 1)
  // / (warmup_steps + 1), in which `first` is the first rate of the schedule.
  int64_t warmup_steps = 0;
  int64_t step_size = 0;  // step: the number of steps between two decays
  double gamma = 0.1;  // factor of one decay: step, multi_step (at each milestone), exponential (at
                       // every step)
  std::vector<int64_t> milestones = {};  // multi_step: steps of the decays, ascending
  double min_learning_rate = 0;          // cosine, linear, polynomial: rate of the last step
  double power = 1;                      // polynomial: the exponent
  double pct_start = 0.3;                // one_cycle: share of the steps in which the rate rises
  double div_factor = 25;                // one_cycle: the first rate is learning_rate / div_factor
  double final_div_factor = 1e4;  // one_cycle: the last rate is the first one / final_div_factor
};
inline const std::vector<FieldRow<ScheduleSpec>>& field_rows(const ScheduleSpec&) {
  using S = ScheduleSpec;
  const FieldNames types = {"constant", "step",   "multi_step", "exponential",
                            "cosine",   "linear", "polynomial", "one_cycle"};
  const FieldNames with_gamma = {"step", "multi_step", "exponential"};
  const FieldNames with_minimum = {"cosine", "linear", "polynomial"};
  const FieldNames step = {"step"}, polynomial = {"polynomial"}, one_cycle = {"one_cycle"};
  static const std::vector<FieldRow<S>> rows = {
      {"type",
       &S::type,
       "This rule changes the learning rate from step to step.",
       kAnyValue,
       kForks,
       {},
       types},
      {"warmup_steps", &S::warmup_steps,
       "The rate first rises from 0 for this many steps, which the schedule does not count.",
       from_to(0, kScheduleStepsMax), kForks},
      {"step_size", &S::step_size,
       "Each time this many steps have passed, the rate is multiplied by `gamma`.",
       from_to(1, kScheduleStepsMax), kRequired | kForks, step},
      {"gamma", &S::gamma, "The rate is multiplied by this, with `exponential` in every step.",
       above(0, 1), kForks | kPlanIgnores, with_gamma},
      {"min_learning_rate", &S::min_learning_rate,
       "The last step has this rate, at most the optimizer's `learning_rate`.",
       from_to(0, kLearningRateMax), kForks | kPlanIgnores, with_minimum},
      {"power", &S::power, "The rate falls with this power of the share of steps that is left.",
       above(0, 100), kForks, polynomial},
      {"pct_start", &S::pct_start, "The rate rises in this share of the steps.", from_to(0, 1),
       kForks, one_cycle},
      {"div_factor", &S::div_factor, "The first rate is `learning_rate` divided by this.",
       from_to(1, 1e12), kForks, one_cycle},
      {"final_div_factor", &S::final_div_factor, "The last rate is the first one divided by this.",
       from_to(1, 1e12), kForks, one_cycle},
  };
  return rows;
}
template <FieldsOf<ScheduleSpec> Spec>
void visit_fields(Spec& spec, auto&& visit) {
  visit_rows(spec, visit);
  visit("milestones", spec.milestones);
}

/// Returns the learning rate of `step` (0-based), in a job of `steps_total` steps.
double learning_rate_at(const ScheduleSpec& schedule, double base, int64_t step,
                        int64_t steps_total);

Status check_optimizer(const OptimizerSpec& spec, const ScheduleSpec& schedule);

/// How the optimizer treats one parameter.
struct ParameterRule {
  bool frozen = false;
  double rate_factor = 1;
  double weight_decay = 0;
  bool hidden_matrix = false;  // Muon trains this parameter; AdamW trains all others
  // I32 [R]: the gradient consists of these rows only, and no other row is updated. Not available
  // for Adafactor, matrices that Muon trains, and shards.
  TensorId rows = kNoTensor;
};

/// The changes made to gradients before the update.
struct GradientSpec {
  double clip_norm = 0;       // 0: not clipped
  double clip_value = 0;      // 0: not clipped
  bool measure_norm = false;  // report the norm even if nothing is clipped
};

/// The tensors of dynamic loss scaling. All but `norm` are state, and are saved like the
/// optimizer's state.
struct LossScaling {
  // F32 [1]: factor of the loss before it is differentiated.
  TensorId scale = kNoTensor;
  TensorId good_steps = kNoTensor;  // I64 [1]: steps since the last change of the scale
  TensorId updates = kNoTensor;     // I64 [1]: steps taken so far
  TensorId norm = kNoTensor;  // [1]: norm of the step's gradients; if it is not finite, the step
                              // changes only the scale
};
/// Adds the scale, initially 2^16, to the graph that is differentiated.
TensorId add_loss_scale(Graph& graph);
/// Adds the tensors that only the update needs. `scale` is that of add_loss_scale(), or a tensor
/// that shares its memory.
LossScaling add_loss_scaling(Graph& graph, TensorId scale);

/// The values that loss scaling computes for one step.
struct ScaledStep {
  TensorId learning_rate = kNoTensor;  // F32 [1]: NaN if the step is skipped
  TensorId step = kNoTensor;   // I64 [1]: number of this step, from 0, without the skipped ones
  TensorId scale = kNoTensor;  // F32 [1]: the loss scale that this step's gradients include
};

struct UpdateInputs {
  TensorId learning_rate = kNoTensor;  // F32 [1], graph input
  TensorId step = kNoTensor;           // I64 [1], graph input, counted from 0
  ScaledStep scaled;  // with loss scaling only; learning rate and scale are marked outputs
};

/// Appends one update node (Phase::kUpdate) per parameter, and the parameter's optimizer state
/// ("<param>.momentum", "<param>.exp_avg", "<param>.exp_avg_sq"). If `step` already exists (for
/// dropout), it is shared. A parameter without a rule gets the spec's weight decay. With loss
/// scaling the optimizer does not count skipped steps. A sharded `updater` takes shards of the
/// gradients, and its state has the size of these shards.
UpdateInputs append_optimizer(Graph& graph, const OptimizerSpec& spec,
                              const std::map<TensorId, TensorId>& gradients, TensorId step,
                              const std::map<TensorId, ParameterRule>& rules = {},
                              const LossScaling& scaling = {}, const Updater& updater = {});

struct PreparedGradients {
  std::map<TensorId, TensorId> gradients;  // by parameter; the gradients that the optimizer reads
  /// [1], before clipping and without the loss scale; a marked output if the spec clips or measures
  /// the norm.
  TensorId norm = kNoTensor;
};
/// Appends the nodes (Phase::kUpdate) that measure and clip the gradients, and divide them by the
/// loss scale if there is one. The norm is that of all ranks' gradients. On a host its bits do not
/// depend on whether the gradients are sharded.
PreparedGradients append_clipping(Graph& graph, const GradientSpec& spec,
                                  const std::map<TensorId, TensorId>& gradients,
                                  TensorId loss_scale = kNoTensor, const Updater& updater = {});

/// Returns true if the optimizer updates each element of a parameter independently of the others.
bool updates_elements(const OptimizerSpec& spec);
/// Returns true if, in addition, the optimizer has state that ranks can shard.
bool can_shard(const OptimizerSpec& spec);

}  // namespace trainyard
