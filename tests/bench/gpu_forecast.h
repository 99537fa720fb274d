// tests/bench/gpu_forecast.h: forecasts for a GPU without having one. The networks that a worker
// times on a device (src/calibration/calibrate_probes.h) get the times that the model of an H100
// predicts (step_model.h); from these rates, steps are forecast as in the daemon. The difference
// from the model's prediction for these steps is the error of the forecast: it shows how well times
// at the probes' sizes extrapolate to those of jobs.
#pragma once

#include <vector>

#include "src/forecast/forecast.h"
#include "tests/bench/step_model.h"

namespace trainyard::bench {

struct ForecastRow {
  MeasuredRow of;  // `ms` is 0 if the first run had no such step
  TimeRange forecast;
  TimeRange assumed;  // from the published rates of an H100 instead (src/forecast/assumed_rates.h)
  double modelled_s = 0;
  double error() const { return forecast.seconds / modelled_s - 1; }
  bool is_in_range() const { return is_in(forecast); }
  bool is_in(const TimeRange& range) const {
    return modelled_s >= range.low && modelled_s <= range.high;
  }
};

/// Returns the steps of the first run, and others with sizes between and beyond those of the
/// probes. Throws std::runtime_error if a step cannot be forecast.
std::vector<ForecastRow> forecast_rows(const AlgorithmTimes& times);

}  // namespace trainyard::bench
