// server/store/forecast_store.h: rates of devices as they were measured, and what became of
// forecasts. Thread-safe; see server/store/store.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/store/done.h"
#include "server/store/job.h"
#include "src/base/result.h"

namespace trainyard::server {

class StoreCore;
class Connection;

/// What rates hold for.
struct RatesKey {
  std::string device;  // model, cores and build
  int32_t threads = 0;
  v1::Recipe::Precision precision = v1::Recipe::PRECISION_UNSPECIFIED;

  auto operator<=>(const RatesKey&) const = default;
};
struct StoredRates {
  RatesKey key;
  int64_t time_us = 0;  // of the measurement
  std::string rates;    // JSON (src/forecast/rates.h)
};

/// Of a job that has SUCCEEDED and had a forecast. Times in seconds.
struct ForecastOutcome {
  int64_t number = 0;  // in the order of their ends
  std::string device_model;
  int32_t threads = 0;
  v1::Recipe::Precision precision = v1::Recipe::PRECISION_UNSPECIFIED;
  std::string graph;  // v1::Forecast.graph
  std::string job;    // its name
  int64_t end_time_us = 0;
  std::string basis;
  int64_t steps = 0;  // that were measured
  double step = 0, step_low = 0, step_high = 0, step_measured = 0;
  double total = 0, total_measured = 0;  // measured: 0 unless one attempt ran the whole job
};

/// Steps of which a job's time is known well enough to be kept.
inline constexpr int64_t kOutcomeStepsMin = 20;
/// Rows that are kept; older ones go.
inline constexpr int64_t kOutcomesMax = 10'000;

class ForecastStore {
 public:
  explicit ForecastStore(StoreCore& core) : core_(core) {}

  /// Takes the place of older rates of that key.
  void save_rates(StoredRates rates, Done<void> done);
  Status save_rates(StoredRates rates);
  Result<std::vector<StoredRates>> rates() const;
  /// Those behind `after`, oldest first.
  Result<std::vector<ForecastOutcome>> outcomes(int64_t after) const;

 private:
  StoreCore& core_;
};

/// Stores what a job that ends now was forecast to take and took, if both are known (forecast_on)
/// and it had its devices to itself: with the commit that ends it.
void note_outcome(Connection& db, const Job& job, int64_t now_us);

}  // namespace trainyard::server
