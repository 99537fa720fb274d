#include <algorithm>
#include <cmath>
#include <numbers>

#include "src/optim/optimizer.h"

namespace trainyard {

double learning_rate_at(const ScheduleSpec& schedule, double base, int64_t step,
                        int64_t steps_total) {
  const int64_t warmup = schedule.warmup_steps;
  if (step < warmup) return base * static_cast<double>(step + 1) / static_cast<double>(warmup + 1);
  // Counted from the end of the warm-up.
  const int64_t done = step - warmup;
  if (schedule.type == "step") {
    return base * std::pow(schedule.gamma, static_cast<double>(done / schedule.step_size));
  }
  if (schedule.type == "cosine") {
    const int64_t last = std::max<int64_t>(steps_total - 1 - warmup, 1);
    const double share = std::min(1.0, static_cast<double>(done) / static_cast<double>(last));
    return schedule.min_learning_rate +
           0.5 * (base - schedule.min_learning_rate) * (1 + std::cos(std::numbers::pi * share));
  }
  return base;
}

}  // namespace trainyard
