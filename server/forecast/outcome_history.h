// server/forecast/outcome_history.h: the measured times of ended jobs and their forecasts, read
// from the store.
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

inline constexpr size_t kForecastsKeptMax = 1024;  // the largest number of cached forecasts
inline constexpr double kSecondsPerHour = 3600;

/// Jobs with equal keys compute the same graph on the same kind of device.
struct OutcomeKey {
  std::string model;    // model of the device, or result of outcome_model()
  int32_t threads = 0;  // 0 on a GPU of this server
  v1::Recipe::Precision precision = v1::Recipe::FP32;
  std::string graph;
  auto operator<=>(const OutcomeKey&) const = default;
};
/// Returns a key with the precision in which the device computes: on a CPU, TF32 becomes FP32.
OutcomeKey outcome_key(std::string model, int32_t threads, v1::Recipe::Precision precision,
                       std::string graph);
v1::Recipe::Precision computed_precision(v1::Recipe::Precision precision, bool on_cpu);

/// Not thread-safe, except for grow().
class OutcomeHistory {
 public:
  explicit OutcomeHistory(Store& store) : store_(store) {}

  /// Notes that the store may have new outcomes. May be called on any thread.
  void grow() { stale_ = true; }
  /// Reads the outcomes that were stored since the last call and returns their number.
  int64_t read();
  /// Returns the measured step times of the newest jobs with this key; nothing if there are none.
  std::optional<MeasuredSteps> steps(const OutcomeKey& key) const;
  /// Sets the errors of past forecasts on the devices whose model `is_of` accepts.
  void describe(const std::function<bool(const std::string& model)>& is_of,
                v1::DeviceForecasts& out) const;

 private:
  Store& store_;
  std::atomic<bool> stale_{true};
  int64_t last_ = 0;                                // number of the last outcome that was read
  std::deque<ForecastOutcome> newest_;              // at most kOutcomesDescribed
  std::map<OutcomeKey, std::deque<double>> steps_;  // at most kOutcomesOfGraph per key
};

void set_run(const RunForecast& run, v1::Forecast& out);
/// Returns text such as "3 finished jobs of this graph".
std::string finished_jobs_text(const MeasuredSteps& measured);
/// Returns text such as "0.4 s", "42 s", "25 min", "6 h" or "12 days".
std::string duration_text(double seconds);

}  // namespace trainyard::server
