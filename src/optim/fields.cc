// The fields of optimizers and schedules: their ranges, and which types look at them.
#include <algorithm>

#include "src/optim/optimizer.h"

namespace trainyard {
namespace {

constexpr double kLearningRateMax = 1e6;
constexpr double kStepsMax = 0x1p40;
const FieldNames kAdams = {"adam", "adamw", "lion", "muon"};

const FieldNames& names_of(const auto& spec) {
  for (const auto& row : field_rows(spec)) {
    if (row.name == "type") return row.names;
  }
  static const FieldNames none;
  return none;
}

}  // namespace

const std::vector<FieldRow<OptimizerSpec>>& field_rows(const OptimizerSpec&) {
  using S = OptimizerSpec;
  static const std::vector<FieldRow<S>> rows = {
      {"type",
       &S::type,
       {},
       0,
       {},
       {"sgd", "adam", "adamw", "rmsprop", "lion", "adafactor", "muon"}},
      {"learning_rate", &S::learning_rate, above(0, kLearningRateMax), kForks | kPlanIgnores},
      {"momentum",
       &S::momentum,
       below(0, 1),
       kForksAboveZero | kPlanIgnores,
       {"sgd", "rmsprop", "muon"}},
      {"nesterov", &S::nesterov, {}, kForks, {"sgd", "muon"}},
      {"beta1", &S::beta1, below(0, 1), kForks | kPlanIgnores, kAdams},
      {"beta2", &S::beta2, below(0, 1), kForks | kPlanIgnores, kAdams},
      {"epsilon",
       &S::epsilon,
       above(0, 1),
       kForks | kPlanIgnores,
       {"adam", "adamw", "rmsprop", "adafactor", "muon"}},
      {"weight_decay", &S::weight_decay, from_to(0, kLearningRateMax), kForks | kPlanIgnores},
      {"weight_decay_on", &S::weight_decay_on, {}, kForks, {}, {"all", "matrices"}},
      {"alpha", &S::alpha, below(0, 1), kForks | kPlanIgnores, {"rmsprop"}},
      {"centered", &S::centered, {}, 0, {"rmsprop"}},
      {"beta2_decay", &S::beta2_decay, from_to(-1, 0), kForks | kPlanIgnores, {"adafactor"}},
      {"clip_threshold", &S::clip_threshold, from_to(1, 1e6), kForks | kPlanIgnores, {"adafactor"}},
      {"scale_min", &S::scale_min, above(0, 1), kForks | kPlanIgnores, {"adafactor"}},
      {"newton_schulz_steps", &S::newton_schulz_steps, from_to(1, 99), kForks, {"muon"}},
      {"adjust_rate", &S::adjust_rate, {}, kForks, {"muon"}, {"original", "match_rms_adamw"}},
      {"fallback_learning_rate",
       &S::fallback_learning_rate,
       above(0, kLearningRateMax),
       kOffAtZero | kForks | kPlanIgnores,
       {"muon"}},
  };
  return rows;
}

const std::vector<FieldRow<ScheduleSpec>>& field_rows(const ScheduleSpec&) {
  using S = ScheduleSpec;
  static const std::vector<FieldRow<S>> rows = {
      {"type",
       &S::type,
       {},
       kForks,
       {},
       {"constant", "step", "multi_step", "cosine", "linear", "polynomial", "exponential",
        "one_cycle"}},
      {"warmup_steps", &S::warmup_steps, from_to(0, kStepsMax), kForks},
      {"step_size", &S::step_size, from_to(1, kStepsMax), kForks, {"step"}},
      {"gamma",
       &S::gamma,
       above(0, 1),
       kForks | kPlanIgnores,
       {"step", "multi_step", "exponential"}},
      // Nor may it be larger than the optimizer's learning_rate.
      {"min_learning_rate",
       &S::min_learning_rate,
       from_to(0, kLearningRateMax),
       kForks | kPlanIgnores,
       {"cosine", "linear", "polynomial"}},
      {"power", &S::power, above(0, 100), kForks, {"polynomial"}},
      {"pct_start", &S::pct_start, from_to(0, 1), kForks, {"one_cycle"}},
      {"div_factor", &S::div_factor, from_to(1, 1e12), kForks, {"one_cycle"}},
      {"final_div_factor", &S::final_div_factor, from_to(1, 1e12), kForks, {"one_cycle"}},
  };
  return rows;
}

std::span<const std::string> optimizer_types() { return names_of(OptimizerSpec()); }
std::span<const std::string> schedule_types() { return names_of(ScheduleSpec()); }

OptimizerSpec default_optimizer(std::string_view type) {
  OptimizerSpec spec;
  spec.type = type;
  if (type == "lion") spec.beta2 = 0.99;
  if (type == "adafactor") spec.epsilon = 0x1p-23;  // of float32
  if (type == "muon") {
    spec.momentum = 0.95;
    spec.nesterov = true;
  }
  return spec;
}

}  // namespace trainyard
