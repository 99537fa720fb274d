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

/// Names, defaults and formulas as in PyTorch's torch.optim where it has them
/// (docs/optimizers.md). A row says which types look at a field.
struct OptimizerSpec {
  std::string type = "sgd";
  double learning_rate = 0.01;
  double momentum = 0;
  bool nesterov = false;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double weight_decay = 0;              // sgd, adam, rmsprop: added to the gradient; else decoupled
  std::string weight_decay_on = "all";  // or "matrices": not biases, normalization, embeddings
  double alpha = 0.99;                  // rmsprop: share of the squares that is kept
  bool centered = false;                // rmsprop
  double beta2_decay = -0.8;            // adafactor
  double clip_threshold = 1;            // adafactor: largest root mean square of an update
  double scale_min = 1e-3;              // adafactor: least scale of a parameter
  int64_t newton_schulz_steps = 5;      // muon
  std::string adjust_rate = "original";  // muon: or "match_rms_adamw"
  double fallback_learning_rate = 0;     // muon: of what AdamW trains; 0: learning_rate
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
       "The scale that a parameter gives to its update is at least this.", above(0, 1),
       kForks | kPlanIgnores, adafactor},
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

/// The spec of a type with the defaults that spec files get: muon's momentum is 0.95. An unknown
/// type gets those of sgd; check_optimizer() refuses it.
OptimizerSpec default_optimizer(std::string_view type);

std::span<const std::string> optimizer_types();
std::span<const std::string> schedule_types();

struct ScheduleSpec {
  std::string type = "constant";
  // Steps before any schedule: the rate climbs in equal parts from 0, which is never used, to
  // the first rate of the schedule: rate * (s + 1) / (warmup_steps + 1). The schedule counts from
  // there.
  int64_t warmup_steps = 0;
  int64_t step_size = 0;  // step: every this many steps ...
  double gamma = 0.1;     // ... times gamma; multi_step: at each milestone; exponential:
                          // every step
  std::vector<int64_t> milestones = {};  // multi_step: ascending
  double min_learning_rate = 0;          // cosine, linear, polynomial: rate of the last step
  double power = 1;                      // polynomial
  double pct_start = 0.3;                // one_cycle: share of the steps that climb
  double div_factor = 25;                // one_cycle: first rate is learning_rate / div_factor ...
  double final_div_factor = 1e4;         // ... and the last one that over final_div_factor
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

/// Learning rate of step s (0-based) of steps_total.
double learning_rate_at(const ScheduleSpec& schedule, double base, int64_t step,
                        int64_t steps_total);

Status check_optimizer(const OptimizerSpec& spec, const ScheduleSpec& schedule);

/// How the optimizer treats one parameter.
struct ParameterRule {
  bool frozen = false;
  double rate_factor = 1;
  double weight_decay = 0;
  bool hidden_matrix = false;  // Muon's; other parameters are AdamW's
  // I32 [R]: the gradient is of these rows alone, and no other row is updated. Not for Adafactor,
  // Muon's matrices and shards.
  TensorId rows = kNoTensor;
};

/// What happens to gradients before the update.
struct GradientSpec {
  double clip_norm = 0;       // 0: not clipped
  double clip_value = 0;      // 0: not clipped
  bool measure_norm = false;  // report it though nothing is clipped
};

/// What dynamic loss scaling keeps, beside the optimizer's state.
struct LossScaling {
  TensorId scale =
      kNoTensor;  // F32 [1]: what the loss is multiplied by before it is differentiated
  TensorId good_steps = kNoTensor;  // I64 [1]
  TensorId updates = kNoTensor;     // I64 [1]
  TensorId norm = kNoTensor;        // [1]: of the step's gradients; where it is not finite, the
                                    // step changes nothing but the scale
};
/// Adds the scale, which begins at 2^16, to the graph that differentiates.
TensorId add_loss_scale(Graph& graph);
/// Adds what only the update needs. `scale` is add_loss_scale()'s, or shares its memory.
LossScaling add_loss_scaling(Graph& graph, TensorId scale);

/// Of one step.
struct ScaledStep {
  TensorId learning_rate = kNoTensor;  // F32 [1]: NaN in a step that is not taken
  TensorId step = kNoTensor;           // I64 [1]: of those that are taken, from 0
  TensorId scale = kNoTensor;          // F32 [1]: that its gradients have
};

struct UpdateInputs {
  TensorId learning_rate = kNoTensor;  // F32 [1], graph input
  TensorId step = kNoTensor;           // I64 [1], graph input, 0-based
  ScaledStep scaled;                   // with loss scaling; its outputs are marked
};

/// Appends one update node (Phase::kUpdate) per parameter, and its optimizer state
/// ("<param>.momentum", "<param>.exp_avg", "<param>.exp_avg_sq"). `step` may exist already
/// (dropout) and is then shared. A parameter without a rule gets the spec's weight decay.
/// With loss scaling the optimizer counts only the steps that change something. A sharded
/// `updater` has shards of the gradients; its state is as large.
UpdateInputs append_optimizer(Graph& graph, const OptimizerSpec& spec,
                              const std::map<TensorId, TensorId>& gradients, TensorId step,
                              const std::map<TensorId, ParameterRule>& rules = {},
                              const LossScaling& scaling = {}, const Updater& updater = {});

struct PreparedGradients {
  std::map<TensorId, TensorId> gradients;  // by parameter, as the optimizer reads them
  /// [1], before clipping and without the loss scale; a marked output if the spec asks for it.
  TensorId norm = kNoTensor;
};
/// Appends the nodes (Phase::kUpdate) that measure and clip, and divide by the loss scale if there
/// is one. The norm is that of all ranks' gradients, with the same bits on a host whether they are
/// sharded or not.
PreparedGradients append_clipping(Graph& graph, const GradientSpec& spec,
                                  const std::map<TensorId, TensorId>& gradients,
                                  TensorId loss_scale = kNoTensor, const Updater& updater = {});

/// True if the optimizer updates each element of a parameter by itself.
bool updates_elements(const OptimizerSpec& spec);
/// True if it has state that can be sharded besides: it keeps some.
bool can_shard(const OptimizerSpec& spec);

}  // namespace trainyard
