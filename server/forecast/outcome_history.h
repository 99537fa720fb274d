// server/forecast/outcome_history.h: what jobs that have ended took beside their forecasts, as the
// store has it.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "server/store/store.h"
#include "src/forecast/forecast.h"
#include "trainyard/v1/system_service.pb.h"

namespace trainyard::server {

inline constexpr size_t kForecastsKeptMax = 1024;  // answers, until what they rest on changes
inline constexpr double kSecondsPerHour = 3600;

/// Jobs of one key compute the same on the same kind of device.
struct OutcomeKey {
  std::string model;    // of the device, or outcome_model()
  int32_t threads = 0;  // of the server's own devices: 0 on a GPU
  v1::Recipe::Precision precision = v1::Recipe::FP32;
  std::string graph;
  auto operator<=>(const OutcomeKey&) const = default;
};
/// With the precision that such a device computes in: on a CPU TF32 is computed as FP32.
OutcomeKey outcome_key(std::string model, int32_t threads, v1::Recipe::Precision precision,
                       std::string graph);
v1::Recipe::Precision computed_precision(v1::Recipe::Precision precision, bool on_cpu);

/// Not thread-safe, but for grow().
class OutcomeHistory {
 public:
  explicit OutcomeHistory(Store& store) : store_(store) {}

  /// There may be more in the store by now.
  void grow() { stale_ = true; }
  /// Takes what has ended since the last time; returns how many that were.
  int64_t read();
  /// Of the newest jobs of the key; nothing if there were none.
  std::optional<MeasuredSteps> steps(const OutcomeKey& key) const;
  /// Fills in how far forecasts were off on devices whose model `is_of` accepts.
  void describe(const std::function<bool(const std::string& model)>& is_of,
                v1::DeviceForecasts& out) const;

 private:
  Store& store_;
  std::atomic<bool> stale_{true};
  int64_t last_ = 0;                                // its number
  std::deque<ForecastOutcome> newest_;              // kOutcomesDescribed
  std::map<OutcomeKey, std::deque<double>> steps_;  // kOutcomesOfGraph of each
};

void set_run(const RunForecast& run, v1::Forecast& out);
/// "3 finished jobs of this graph".
std::string finished_jobs_text(const MeasuredSteps& measured);
/// "0.4 s", "42 s", "25 min", "6 h", "12 days".
std::string duration_text(double seconds);

}  // namespace trainyard::server
