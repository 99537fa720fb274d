// Prints forecasts of steps on an H100 as Markdown, without needing one (gpu_forecast.h).
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "tests/bench/gpu_forecast.h"

namespace trainyard::bench {
namespace {

int run() {
  std::vector<double> errors;
  size_t in_range = 0;
  std::printf(
      "| model, batch | precision | forecast ms | range | modelled ms | off by | in range | "
      "first run, older kernels, ms |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n");
  for (const ForecastRow& row : forecast_rows(AlgorithmTimes(first_run_algorithms()))) {
    const TimeRange ms = row.forecast * 1e3;
    std::printf("| %s, %lld | %s | %.4g | %.4g to %.4g | %.4g | %+.0f %% | %s | ",
                std::string(row.of.model).c_str(), static_cast<long long>(row.of.batch),
                std::string(row.of.precision).c_str(), ms.seconds, ms.low, ms.high,
                row.modelled_s * 1e3, row.error() * 100, row.is_in_range() ? "yes" : "no");
    row.of.ms > 0 ? std::printf("%.4g |\n", row.of.ms) : std::printf(" |\n");
    errors.push_back(std::abs(row.error()) * 100);
    in_range += row.is_in_range() ? 1 : 0;
  }
  std::ranges::sort(errors);
  std::printf(
      "\n%zu steps: median error %.1f %%, 95th percentile %.0f %%, the largest %.0f %%; %zu "
      "in their range.\n",
      errors.size(), errors[errors.size() / 2], errors[errors.size() * 95 / 100], errors.back(),
      in_range);
  return 0;
}

}  // namespace
}  // namespace trainyard::bench

int main() {
  try {
    return trainyard::bench::run();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "gpu_forecast: %s\n", e.what());
    return 1;
  }
}
