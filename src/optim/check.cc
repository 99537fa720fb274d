// Validates an optimizer and its schedule; each error names the field that the user wrote.
#include "src/base/text.h"
#include "src/base/violations.h"
#include "src/optim/optimizer.h"

namespace trainyard {
namespace {

constexpr const char* kRange = "FIELD_OUT_OF_RANGE";

void check_milestones(const std::vector<int64_t>& milestones, Violations& violations) {
  const char* field = "recipe.schedule.milestones";
  constexpr int64_t kStepsMax = int64_t{1} << 40;
  if (milestones.empty()) {
    violations.add(kRange, field, "is empty, expected steps such as [1000, 2000]");
  }
  for (size_t i = 0; i < milestones.size(); ++i) {
    const bool ascends = i == 0 || milestones[i] > milestones[i - 1];
    if (milestones[i] >= 1 && milestones[i] <= kStepsMax && ascends) continue;
    violations.add(
        kRange, field,
        std::to_string(milestones[i]) + " is out of range, expected ascending steps of at least 1");
  }
}

}  // namespace

Status check_optimizer(const OptimizerSpec& spec, const ScheduleSpec& schedule) {
  Violations violations;
  check_rows(spec, spec.type, "recipe.optimizer.", violations);
  if ((spec.type == "sgd" || spec.type == "muon") && spec.nesterov && spec.momentum == 0) {
    violations.add(kRange, "recipe.optimizer.nesterov", "needs recipe.optimizer.momentum above 0");
  }
  check_rows(schedule, schedule.type, "recipe.schedule.", violations);
  if (schedule.type == "multi_step") check_milestones(schedule.milestones, violations);
  if (spec.learning_rate > 0 && schedule.min_learning_rate > spec.learning_rate) {
    violations.add(kRange, "recipe.schedule.min_learning_rate",
                   short_number(schedule.min_learning_rate) +
                       " is out of range, expected 0 or more and at most "
                       "recipe.optimizer.learning_rate");
  }
  return violations.empty() ? Status() : Status(violations.to_error());
}

}  // namespace trainyard
