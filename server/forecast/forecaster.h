// server/forecast/forecaster.h: what jobs will take on the devices of this server, and how right
// that was.
//
// Rates are measured by a worker once for a device, a number of threads and a precision, when the
// server has been idle for a while: no job waits for it, and what a job has disturbed is measured
// again later. They are kept until the device or the worker program changes. Jobs that have ended
// correct the forecasts of later ones that compute the same.
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
  double cpu_price_per_hour = 0, gpu_price_per_hour = 0;  // of one device; 0: none is set
  int64_t idle_us = 10'000'000;  // without a job, before rates are measured; < 0: they never are
  std::string build;             // of the worker program: other rates hold for another one
};

/// A job whose time is asked for.
struct ForecastQuery {
  std::string key;                          // equal where all of the following are
  std::shared_ptr<const RunWork> cpu, gpu;  // none: it may not run there
  int32_t threads = 1;                      // on the CPU
  int32_t gpus = 1;
  v1::Recipe::Precision precision = v1::Recipe::FP32;
  int64_t plan_bytes = 0;    // of each GPU
  int64_t bytes_on_cpu = 0;  // of the CPU instead
};

/// Thread-safe. Create it before the first change of a job.
class Forecaster {
 public:
  Forecaster(Store& store, Inventory& inventory, ForecasterOptions options,
             const Clock& clock = system_clock());
  ~Forecaster();

  /// Reads what the store has. Errors of the store.
  Status open();
  /// Measures rates in a worker; `done` gets their JSON.
  using Calibrate = std::function<void(const Device& device, int32_t threads,
                                       v1::Recipe::Precision precision, Done<std::string> done)>;
  void start(Calibrate calibrate);
  void stop();

  /// The CPU, then one for each model of GPU. Rates that are missing are measured for later ones.
  /// Microseconds, for a query that was asked before.
  std::vector<v1::Forecast> forecast(const ForecastQuery& query, const Devices& devices);
  /// A step of a run by the measured rates alone, so that batches and layouts compare: what
  /// finished jobs took is known of some of them only. NOT_FOUND/RATE_UNKNOWN says why there is
  /// none; missing rates are then measured.
  Result<TimeRange> step_time(const Device& device, int32_t threads,
                              v1::Recipe::Precision precision, const RunWork& work);
  /// What the device's forecasts rest on, and their errors.
  v1::DeviceForecasts describe(const Device& device);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;  // also held by a measurement under way and by the store's observer
};

/// "GPU (NVIDIA H200): 22x faster for 2.5x the price; on the CPU this takes 6 h."; why it is not
/// known; empty without forecasts.
std::string forecast_advice(const std::vector<v1::Forecast>& forecasts);

}  // namespace trainyard::server
