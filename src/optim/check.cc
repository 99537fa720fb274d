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

class Ranges {
 public:
  /// Refuses unless `accepted`. NaN fails every comparison, so that callers need not think of it.
  void check(bool accepted, const char* field, double value, const char* expected) {
    if (accepted) return;
    violations_.add("FIELD_OUT_OF_RANGE", field,
                    short_number(value) + " is out of range, expected " + expected);
  }
  void check_type(const char* field, const std::string& value,
                  std::span<const std::string> accepted) {
    std::string list;
    for (const std::string& name : accepted) {
      if (name == value) return;
      list += (list.empty() ? "" : ", ") + name;
    }
    const auto nearest = nearest_name(value, accepted);
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
  const auto uses = [&](const char* field) { return optimizer_uses(o.type, field); };
  const auto share = [&](const char* name, double value) {
    if (uses(name)) {
      r.check(value >= 0 && value < 1, ("recipe.optimizer." + std::string(name)).c_str(), value,
              "0 or more and less than 1");
    }
  };
  r.check_type("recipe.optimizer.type", o.type, optimizer_types());
  r.check(o.learning_rate > 0 && o.learning_rate <= kLearningRateMax,
          "recipe.optimizer.learning_rate", o.learning_rate, "more than 0 and at most 1e6");
  r.check(o.weight_decay >= 0 && o.weight_decay <= kLearningRateMax,
          "recipe.optimizer.weight_decay", o.weight_decay, "0 or more and at most 1e6");
  static const std::vector<std::string> kDecayed = {"all", "matrices"};
  r.check_type("recipe.optimizer.weight_decay_on", o.weight_decay_on, kDecayed);
  share("momentum", o.momentum);
  if (uses("nesterov") && o.nesterov && o.momentum == 0) {
    r.refuse("recipe.optimizer.nesterov", "needs recipe.optimizer.momentum above 0");
  }
  share("beta1", o.beta1);
  share("beta2", o.beta2);
  share("alpha", o.alpha);
  if (uses("epsilon")) {
    r.check(o.epsilon > 0 && o.epsilon <= 1, "recipe.optimizer.epsilon", o.epsilon,
            "more than 0 and at most 1");
  }
  if (o.type == "adafactor") {
    r.check(o.beta2_decay <= 0 && o.beta2_decay >= -1, "recipe.optimizer.beta2_decay",
            o.beta2_decay, "-1 to 0");
    r.check(o.clip_threshold >= 1 && o.clip_threshold <= kLearningRateMax,
            "recipe.optimizer.clip_threshold", o.clip_threshold, "1 to 1e6");
    r.check(o.scale_min > 0 && o.scale_min <= 1, "recipe.optimizer.scale_min", o.scale_min,
            "more than 0 and at most 1");
  }
  if (o.type == "muon") {
    r.check(o.newton_schulz_steps >= 1 && o.newton_schulz_steps <= 99,
            "recipe.optimizer.newton_schulz_steps", static_cast<double>(o.newton_schulz_steps),
            "1 to 99");
    static const std::vector<std::string> kAdjustments = {"original", "match_rms_adamw"};
    r.check_type("recipe.optimizer.adjust_rate", o.adjust_rate, kAdjustments);
    r.check(o.fallback_learning_rate >= 0 && o.fallback_learning_rate <= kLearningRateMax,
            "recipe.optimizer.fallback_learning_rate", o.fallback_learning_rate,
            "more than 0 and at most 1e6");
  }
}

void check_milestones(const std::vector<int64_t>& milestones, Ranges& r) {
  const char* field = "recipe.schedule.milestones";
  if (milestones.empty()) r.refuse(field, "is empty, expected steps such as [1000, 2000]");
  for (size_t i = 0; i < milestones.size(); ++i) {
    const bool ascends = i == 0 || milestones[i] > milestones[i - 1];
    r.check(milestones[i] >= 1 && milestones[i] <= kStepsMax && ascends, field,
            static_cast<double>(milestones[i]), "ascending steps of at least 1");
  }
}

void check_schedule_fields(const ScheduleSpec& s, double learning_rate, Ranges& r) {
  const auto uses = [&](const char* field) { return schedule_uses(s.type, field); };
  r.check_type("recipe.schedule.type", s.type, schedule_types());
  r.check(s.warmup_steps >= 0 && s.warmup_steps <= kStepsMax, "recipe.schedule.warmup_steps",
          static_cast<double>(s.warmup_steps), "0 or more and at most 2^40");
  if (uses("step_size")) {
    r.check(s.step_size >= 1 && s.step_size <= kStepsMax, "recipe.schedule.step_size",
            static_cast<double>(s.step_size), "1 or more and at most 2^40");
  }
  if (uses("gamma")) {
    r.check(s.gamma > 0 && s.gamma <= 1, "recipe.schedule.gamma", s.gamma,
            "more than 0 and at most 1");
  }
  if (s.type == "multi_step") check_milestones(s.milestones, r);
  if (uses("min_learning_rate")) {
    r.check(
        s.min_learning_rate >= 0 && (!(learning_rate > 0) || s.min_learning_rate <= learning_rate),
        "recipe.schedule.min_learning_rate", s.min_learning_rate,
        "0 or more and at most recipe.optimizer.learning_rate");
  }
  if (uses("power")) {
    r.check(s.power > 0 && s.power <= 100, "recipe.schedule.power", s.power,
            "more than 0 and at most 100");
  }
  if (s.type == "one_cycle") {
    r.check(s.pct_start >= 0 && s.pct_start <= 1, "recipe.schedule.pct_start", s.pct_start,
            "0 to 1");
    for (const auto& [field, value] : {std::pair{"recipe.schedule.div_factor", s.div_factor},
                                       {"recipe.schedule.final_div_factor", s.final_div_factor}}) {
      r.check(value >= 1 && value <= 1e12, field, value, "1 to 1e12");
    }
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
