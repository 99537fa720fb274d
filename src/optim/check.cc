// Refusals of an optimizer and its schedule, each under the field that the user wrote.
#include <cmath>
#include <cstdio>

#include "src/base/text.h"
#include "src/base/violations.h"
#include "src/optim/optimizer.h"

namespace trainyard {
namespace {

constexpr double kLearningRateMax = 1e6;
constexpr int64_t kStepsMax = int64_t{1} << 40;

std::string text_of(double value) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%g", value);
  return buffer;
}

class Ranges {
 public:
  /// Refuses unless `accepted`. NaN fails every comparison, so that callers need not think of it.
  void check(bool accepted, const char* field, double value, const char* expected) {
    if (accepted) return;
    violations_.add("FIELD_OUT_OF_RANGE", field,
                    text_of(value) + " is out of range, expected " + expected);
  }
  void check_type(const char* field, const std::string& value,
                  std::initializer_list<const char*> accepted) {
    const std::vector<std::string> names(accepted.begin(), accepted.end());
    std::string list;
    for (const std::string& name : names) {
      if (name == value) return;
      list += (list.empty() ? "" : ", ") + name;
    }
    const auto nearest = nearest_name(value, names);
    violations_.add("FIELD_UNKNOWN_VALUE", field,
                    quoted_value(value) + " is not known, expected one of " + list +
                        (nearest ? "; did you mean '" + *nearest + "'?" : ""));
  }
  void refuse(const char* field, const char* description) {
    violations_.add("FIELD_OUT_OF_RANGE", field, description);
  }
  Status status() const { return violations_.empty() ? Status() : Status(violations_.to_error()); }

 private:
  Violations violations_;
};

void check_optimizer_fields(const OptimizerSpec& o, Ranges& r) {
  r.check_type("recipe.optimizer.type", o.type, {"sgd", "adam", "adamw"});
  r.check(o.learning_rate > 0 && o.learning_rate <= kLearningRateMax,
          "recipe.optimizer.learning_rate", o.learning_rate, "more than 0 and at most 1e6");
  r.check(o.weight_decay >= 0 && o.weight_decay <= kLearningRateMax,
          "recipe.optimizer.weight_decay", o.weight_decay, "0 or more and at most 1e6");
  if (o.type == "sgd") {
    r.check(o.momentum >= 0 && o.momentum < 1, "recipe.optimizer.momentum", o.momentum,
            "0 or more and less than 1");
    if (o.nesterov && o.momentum == 0) {
      r.refuse("recipe.optimizer.nesterov", "needs recipe.optimizer.momentum above 0");
    }
    return;
  }
  r.check(o.beta1 >= 0 && o.beta1 < 1, "recipe.optimizer.beta1", o.beta1,
          "0 or more and less than 1");
  r.check(o.beta2 >= 0 && o.beta2 < 1, "recipe.optimizer.beta2", o.beta2,
          "0 or more and less than 1");
  r.check(o.epsilon > 0 && o.epsilon <= 1, "recipe.optimizer.epsilon", o.epsilon,
          "more than 0 and at most 1");
}

void check_schedule_fields(const ScheduleSpec& s, double learning_rate, Ranges& r) {
  r.check_type("recipe.schedule.type", s.type, {"constant", "step", "cosine"});
  r.check(s.warmup_steps >= 0 && s.warmup_steps <= kStepsMax, "recipe.schedule.warmup_steps",
          static_cast<double>(s.warmup_steps), "0 or more and at most 2^40");
  if (s.type == "step") {
    r.check(s.step_size >= 1 && s.step_size <= kStepsMax, "recipe.schedule.step_size",
            static_cast<double>(s.step_size), "1 or more and at most 2^40");
    r.check(s.gamma > 0 && s.gamma <= 1, "recipe.schedule.gamma", s.gamma,
            "more than 0 and at most 1");
  }
  if (s.type == "cosine") {
    r.check(
        s.min_learning_rate >= 0 && (!(learning_rate > 0) || s.min_learning_rate <= learning_rate),
        "recipe.schedule.min_learning_rate", s.min_learning_rate,
        "0 or more and at most recipe.optimizer.learning_rate");
  }
}

}  // namespace

Status check_optimizer(const OptimizerSpec& spec, const ScheduleSpec& schedule) {
  Ranges ranges;
  check_optimizer_fields(spec, ranges);
  check_schedule_fields(schedule, spec.learning_rate, ranges);
  return ranges.status();
}

}  // namespace trainyard
