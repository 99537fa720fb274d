#include "server/store/remaining.h"

#include <algorithm>

#include "server/store/forecast_store.h"
#include "server/store/job.h"

namespace trainyard::server {
namespace {

// Below this share of the forecast speed, other jobs on the device are blamed.
constexpr double kSlowedShare = 0.9;

/// Returns the resource that limits the step according to the forecast, such as compute or memory
/// bandwidth. Used if no measurement shows another cause.
std::string dominant_part(const v1::Forecast& forecast) {
  const bool bound_says = !forecast.bound_by().empty() && forecast.limited_by() != "launches" &&
                          forecast.limited_by() != "exchanges";
  return bound_says ? forecast.bound_by() : forecast.limited_by();
}

}  // namespace

Remaining remaining_of(const v1::RunPlan& plan, const std::string& device,
                       const v1::Progress& progress, int32_t beside) {
  Remaining out;
  const v1::Forecast* const forecast = forecast_on(plan, device);
  const bool known = forecast != nullptr && forecast->total_seconds() > 0;
  const auto steps = static_cast<double>(plan.steps_total());
  const double left = steps - static_cast<double>(progress.step());
  if (left < 0 || steps <= 0) return out;
  const v1::RunTimes& times = progress.times();
  if (times.steps() < kOutcomeStepsMin) {
    if (!known) return out;
    out.seconds = forecast->total_seconds() * left / steps;
    out.low = forecast->total_seconds_low() * left / steps;
    out.high = forecast->total_seconds_high() * left / steps;
    return out;
  }
  // Seconds per step for evaluations and checkpoints: as measured so far, but before the first
  // evaluation at least as forecast.
  double more = (times.evaluations_seconds() + times.checkpoints_seconds()) /
                static_cast<double>(times.steps());
  if (known && times.evaluations() == 0) {
    more = std::max(more, forecast->total_seconds() / steps - forecast->step_seconds());
  }
  more = std::max(0.0, more);
  out.seconds = left * (times.step_seconds() + more);
  out.low = left * times.step_seconds_low();
  out.high = left * (times.step_seconds_high() + 2 * more);
  if (known) out.forecast_share = forecast->step_seconds() / times.step_seconds();
  if (known) out.bound_share = forecast->step_bound_seconds() / times.step_seconds();
  // Data loading counts as the bottleneck if steps wait for rows more than a tenth of the time.
  const bool starves = times.data_wait_seconds() > 0.1 * times.steps_seconds();
  if (beside > 0 && out.forecast_share > 0 && out.forecast_share < kSlowedShare) {
    out.held_back_by =
        std::to_string(beside) + (beside == 1 ? " other job" : " other jobs") + " on the device";
  } else if (starves) {
    out.held_back_by = "data";
  } else if (known) {
    out.held_back_by = dominant_part(*forecast);
  }
  return out;
}

}  // namespace trainyard::server
