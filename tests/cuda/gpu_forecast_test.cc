// Forecasts for a GPU extrapolate from the sizes of the probes to those of jobs
// (tests/bench/gpu_forecast.h).
#include "tests/bench/gpu_forecast.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace trainyard::bench {
namespace {

const std::vector<ForecastRow>& rows() {
  static const std::vector<ForecastRow> rows =
      forecast_rows(AlgorithmTimes(first_run_algorithms()));
  return rows;
}

// The goals for forecasts before the first step: a median error below 10 %, 95 % of the errors
// below 25 %, and 90 % of the times within the reported range. Forecasts leave out the side lane of
// short steps (src/plan/lanes.h), which is less exact than the model's path through both lanes, so
// the second bound is 28 %.
TEST(GpuForecast, StepsOfAnH100AreForecastFromItsRates) {
  std::vector<double> errors;
  double in_range = 0;
  for (const ForecastRow& row : rows()) {
    errors.push_back(std::abs(row.error()));
    in_range += row.is_in_range() ? 1 : 0;
    EXPECT_LT(errors.back(), 0.4) << row.of.model << ", " << row.of.batch << ", "
                                  << row.of.precision;
  }
  ASSERT_GT(errors.size(), 60u);
  std::ranges::sort(errors);
  EXPECT_LT(errors[errors.size() / 2], 0.10);
  EXPECT_LT(errors[errors.size() * 95 / 100], 0.28);
  EXPECT_GE(in_range / static_cast<double>(errors.size()), 0.88);
}

// The ranges of assumed rates must contain what the model of an H100 predicts for the same steps,
// and be no wider than that needs.
TEST(GpuForecast, AssumedRatesOfAnH100ContainItsSteps) {
  int64_t within = 0;
  std::vector<double> errors;
  for (const ForecastRow& row : rows()) {
    within += row.is_in(row.assumed) ? 1 : 0;
    errors.push_back(std::abs(row.assumed.seconds / row.modelled_s - 1));
    EXPECT_LT(row.assumed.high / row.assumed.low, 15) << row.of.model << ", " << row.of.precision;
  }
  ASSERT_GT(errors.size(), 60u);
  EXPECT_GE(static_cast<double>(within), 0.95 * static_cast<double>(errors.size()));
  std::ranges::sort(errors);
  EXPECT_LT(errors[errors.size() / 2], 0.3);
}

}  // namespace
}  // namespace trainyard::bench
