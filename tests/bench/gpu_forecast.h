// tests/bench/gpu_forecast.h: forecasts for a GPU that is not there. The networks that a worker
// times on a device (src/calibration/calibrate_probes.h) take what the model of an H100 says
// (step_model.h), and from these rates steps are forecast as the daemon does it. The difference to
// what the model says of these steps is what the forecast errs by: how far times at the probes'
// sizes carry to those of jobs.
#pragma once

#include <vector>

#include "src/forecast/forecast.h"
#include "tests/bench/step_model.h"

namespace trainyard::bench {

struct ForecastRow {
  MeasuredRow of;  // ms: 0 where the first run had no such step
  TimeRange forecast;
  double modelled_s = 0;
  double error() const { return forecast.seconds / modelled_s - 1; }
  bool is_in_range() const { return modelled_s >= forecast.low && modelled_s <= forecast.high; }
};

/// The steps of the first run, and others between and beyond the probes' sizes. Throws
/// std::runtime_error where a step cannot be forecast.
std::vector<ForecastRow> forecast_rows(const AlgorithmTimes& times);

}  // namespace trainyard::bench
