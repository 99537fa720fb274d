#include "server/forecast/outcome_history.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "server/store/proto_time.h"
#include "src/base/check.h"
#include "src/base/text.h"

namespace trainyard::server {
namespace {

constexpr size_t kOutcomesOfGraph = 5;  // the number of newest outcomes that correct a forecast
constexpr size_t kOutcomesShown = 20;
// The number of newest outcomes whose errors are reported.
constexpr size_t kOutcomesDescribed = 1000;
// Relative margin of the range around fewer than three outcomes; half of it otherwise.
constexpr double kFewOutcomes = 0.1;

double median(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

MeasuredSteps measured_by(const std::deque<double>& newest) {
  MeasuredSteps measured;
  measured.count = std::ssize(newest);
  const double step = median({newest.begin(), newest.end()});
  const auto [low, high] = std::minmax_element(newest.begin(), newest.end());
  const double margin = newest.size() < 3 ? kFewOutcomes : kFewOutcomes / 2;
  measured.step = {step, *low * (1 - margin), *high * (1 + margin)};
  return measured;
}

}  // namespace

v1::Recipe::Precision computed_precision(v1::Recipe::Precision precision, bool on_cpu) {
  if (precision == v1::Recipe::PRECISION_UNSPECIFIED) precision = v1::Recipe::TF32;
  return on_cpu && precision == v1::Recipe::TF32 ? v1::Recipe::FP32 : precision;
}

OutcomeKey outcome_key(std::string model, int32_t threads, v1::Recipe::Precision precision,
                       std::string graph) {
  // In a cluster, a job on GPUs has a number of threads, too. Its precision stays as it is, because
  // the model already distinguishes nodes' CPUs from their GPUs.
  const bool on_cpu = threads > 0 && !model.starts_with(kClusterPrefix);
  return {std::move(model), threads, computed_precision(precision, on_cpu), std::move(graph)};
}

int64_t OutcomeHistory::read() {
  if (!stale_.exchange(false)) return 0;
  Result<std::vector<ForecastOutcome>> newer = store_.forecasts().outcomes(last_);
  if (!newer.ok()) {
    stale_ = true;
    return 0;
  }
  for (ForecastOutcome& o : *newer) {
    TRAINYARD_CHECK(o.number > last_, "outcome " + std::to_string(o.number) +
                                          " of a job is read after outcome " +
                                          std::to_string(last_));
    last_ = o.number;
    std::deque<double>& newest =
        steps_[outcome_key(o.device_model, o.threads, o.precision, o.graph)];
    newest.push_back(o.step_measured);
    if (newest.size() > kOutcomesOfGraph) newest.pop_front();
    newest_.push_back(std::move(o));
    if (newest_.size() > kOutcomesDescribed) newest_.pop_front();
  }
  return std::ssize(*newer);
}

std::optional<MeasuredSteps> OutcomeHistory::steps(const OutcomeKey& key) const {
  const auto history = steps_.find(key);
  if (history == steps_.end()) return std::nullopt;
  return measured_by(history->second);
}

void OutcomeHistory::describe(const std::function<bool(const std::string& model)>& is_of,
                              v1::DeviceForecasts& out) const {
  std::vector<double> errors;
  for (auto o = newest_.rbegin(); o != newest_.rend(); ++o) {
    if (!is_of(o->device_model) || o->step_measured <= 0) continue;
    errors.push_back(std::abs(o->step / o->step_measured - 1));
    if (out.newest_size() == static_cast<int>(kOutcomesShown)) continue;
    v1::ForecastOutcome& shown = *out.add_newest();
    shown.set_job(o->job);
    *shown.mutable_end_time() = to_timestamp(o->end_time_us);
    shown.set_basis(o->basis);
    shown.set_step_seconds(o->step);
    shown.set_step_seconds_low(o->step_low);
    shown.set_step_seconds_high(o->step_high);
    shown.set_step_seconds_measured(o->step_measured);
    shown.set_total_seconds(o->total);
    shown.set_total_seconds_measured(o->total_measured);
  }
  out.set_jobs(std::ssize(errors));
  if (errors.empty()) return;
  std::sort(errors.begin(), errors.end());
  out.set_error_median(errors[errors.size() / 2]);
  out.set_error_p95(errors[(errors.size() - 1) * 95 / 100]);
}

void set_run(const RunForecast& run, v1::Forecast& out) {
  out.set_step_seconds(run.step.seconds);
  out.set_step_seconds_low(run.step.low);
  out.set_step_seconds_high(run.step.high);
  out.set_total_seconds(run.total.seconds);
  out.set_total_seconds_low(run.total.low);
  out.set_total_seconds_high(run.total.high);
  out.set_limited_by(std::string(name_of(run.limited_by)));
  out.set_step_bound_seconds(run.bound.seconds);
  out.set_bound_by(std::string(name_of(run.bound.by)));
  out.set_rows_per_second_needed(run.rows_per_second_needed);
  out.set_rows_per_second_possible(run.rows_per_second_possible);
}

std::string finished_jobs_text(const MeasuredSteps& measured) {
  return std::to_string(measured.count) + " finished job" + (measured.count == 1 ? "" : "s") +
         " of this graph";
}

std::string duration_text(double seconds) {
  struct Unit {
    double seconds;
    const char* name;
  };
  constexpr Unit kUnits[] = {{86'400, " days"}, {3'600, " h"}, {60, " min"}};
  for (const Unit& unit : kUnits) {
    if (seconds < 2 * unit.seconds) continue;
    return short_number(std::round(seconds / unit.seconds)) + unit.name;
  }
  return short_number(seconds < 10 ? std::round(seconds * 10) / 10 : std::round(seconds)) + " s";
}

}  // namespace trainyard::server
