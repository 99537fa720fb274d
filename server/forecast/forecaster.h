// server/forecast/forecaster.h: forecasts the time that jobs take on the devices of this server,
// and reports the errors of past forecasts.
//
// A worker measures the rates once for each device, number of threads and precision, when the
// server has been idle for a while. So no job waits for a measurement, and a measurement that a job
// has disturbed is repeated later. Rates are valid until the device or the worker program changes.
// The measured times of ended jobs correct the forecasts of later jobs with the same graph.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/inventory/inventory.h"
#include "server/store/store.h"
#include "src/base/clock.h"
#include "src/base/result.h"
#include "src/forecast/forecast.h"
#include "trainyard/v1/system_service.pb.h"

namespace trainyard::server {

struct ForecasterOptions {
  int32_t threads_per_job = 1;
  double cpu_price_per_hour = 0, gpu_price_per_hour = 0;  // price of one device; 0: unknown
  int64_t idle_us = 10'000'000;  // idle time before rates are measured; < 0: never
  std::string build;  // build of the worker program; rates of another build are not valid
};

/// A job whose time is to be forecast.
struct ForecastQuery {
  std::string key;                          // cache key: equal if all following fields are equal
  std::shared_ptr<const RunWork> cpu, gpu;  // null: the job may not run there
  int32_t threads = 1;                      // threads if it runs on the CPU
  int32_t gpus = 1;
  v1::Recipe::Precision precision = v1::Recipe::FP32;
  int64_t plan_bytes = 0;    // planned memory of each GPU
  int64_t bytes_on_cpu = 0;  // planned memory if it runs on the CPU
};

/// Thread-safe. Must be created before the first change of a job.
class Forecaster {
 public:
  Forecaster(Store& store, Inventory& inventory, ForecasterOptions options,
             const Clock& clock = system_clock());
  ~Forecaster();

  /// Reads the stored rates. Returns errors of the store.
  Status open();
  /// Starts the measurement of rates in a worker; `done` gets their JSON.
  using Calibrate = std::function<void(const Device& device, int32_t threads,
                                       v1::Recipe::Precision precision, Done<std::string> done)>;
  void start(Calibrate calibrate);
  void stop();

  /// Returns one forecast for the CPU and one for each model of GPU. Missing rates are measured
  /// later, for later forecasts. A repeated query takes microseconds, because forecasts are cached.
  std::vector<v1::Forecast> forecast(const ForecastQuery& query, const Devices& devices);
  /// Returns the time of one step, computed from the measured rates alone. Unlike measured times of
  /// finished jobs, which exist only for some variants, these times are comparable between batch
  /// sizes and sharding plans. The error NOT_FOUND/RATE_UNKNOWN says why there is no time; missing
  /// rates are then measured later.
  Result<TimeRange> step_time(const Device& device, int32_t threads,
                              v1::Recipe::Precision precision, const RunWork& work);
  /// Returns the data from which the device's forecasts are computed, and the errors of past
  /// forecasts.
  v1::DeviceForecasts describe(const Device& device);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;  // shared with a running measurement and with the store's observer
};

/// Returns advice such as "GPU (NVIDIA H200): 22x faster for 2.5x the price; on the CPU this takes
/// 6 h."; empty if no forecast has a time.
std::string forecast_advice(const std::vector<v1::Forecast>& forecasts);

}  // namespace trainyard::server
