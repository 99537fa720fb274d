#include <algorithm>
#include <cmath>
#include <numbers>

#include "src/optim/optimizer.h"

namespace trainyard {
namespace {

double cosine(double from, double to, double share) {
  return to + 0.5 * (from - to) * (1 + std::cos(std::numbers::pi * share));
}

/// Follows two cosines as torch.optim.lr_scheduler.OneCycleLR does: the rate rises to `base`, then
/// falls to almost 0.
double one_cycle(const ScheduleSpec& s, double base, int64_t done, int64_t steps) {
  const double first = base / s.div_factor;
  const double peak = s.pct_start * static_cast<double>(steps) - 1;
  const auto at = static_cast<double>(done), last = static_cast<double>(steps - 1);
  if (at <= peak) return cosine(first, base, peak > 0 ? at / peak : 1);
  const double share = last > peak ? std::min(1.0, (at - peak) / (last - peak)) : 1;
  return cosine(base, first / s.final_div_factor, share);
}

/// Returns the rate of step `done` of `steps`; both exclude the warm-up.
double scheduled_rate(const ScheduleSpec& s, double base, int64_t done, int64_t steps) {
  if (s.type == "step") return base * std::pow(s.gamma, static_cast<double>(done / s.step_size));
  if (s.type == "multi_step") {
    const auto passed = std::ranges::upper_bound(s.milestones, done) - s.milestones.begin();
    return base * std::pow(s.gamma, static_cast<double>(passed));
  }
  if (s.type == "exponential") return base * std::pow(s.gamma, static_cast<double>(done));
  if (s.type == "one_cycle") return one_cycle(s, base, done, steps);
  const double share = std::min(
      1.0, static_cast<double>(done) / static_cast<double>(std::max<int64_t>(steps - 1, 1)));
  if (s.type == "cosine") return cosine(base, s.min_learning_rate, share);
  if (s.type == "linear" || s.type == "polynomial") {
    const double power = s.type == "linear" ? 1 : s.power;
    return s.min_learning_rate + (base - s.min_learning_rate) * std::pow(1 - share, power);
  }
  return base;
}

}  // namespace

double learning_rate_at(const ScheduleSpec& schedule, double base, int64_t step,
                        int64_t steps_total) {
  const int64_t warmup = schedule.warmup_steps;
  const int64_t steps = steps_total - warmup;
  if (step >= warmup) return scheduled_rate(schedule, base, step - warmup, steps);
  return scheduled_rate(schedule, base, 0, steps) * static_cast<double>(step + 1) /
         static_cast<double>(warmup + 1);
}

}  // namespace trainyard
