// Forecasts for a GPU extrapolate from the sizes of the probes to those of jobs
// (tests/bench/gpu_forecast.h).
#include "tests/bench/gpu_forecast.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace trainyard::bench {
namespace {

// The goals for forecasts before the first step: a median error below 10 %, 95 % of the errors
// below 25 %, and 90 % of the times within the reported range.
TEST(GpuForecast, StepsOfAnH100AreForecastFromItsRates) {
  std::vector<double> errors;
  double in_range = 0;
  for (const ForecastRow& row : forecast_rows(AlgorithmTimes(first_run_algorithms()))) {
    errors.push_back(std::abs(row.error()));
    in_range += row.is_in_range() ? 1 : 0;
    EXPECT_LT(errors.back(), 0.4) << row.of.model << ", " << row.of.batch << ", "
                                  << row.of.precision;
  }
  ASSERT_GT(errors.size(), 60u);
  std::ranges::sort(errors);
  EXPECT_LT(errors[errors.size() / 2], 0.10);
  EXPECT_LT(errors[errors.size() * 95 / 100], 0.25);
  EXPECT_GE(in_range / static_cast<double>(errors.size()), 0.88);
}

}  // namespace
}  // namespace trainyard::bench
