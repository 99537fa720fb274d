// server/supervisor/calibration.h: measures the rates of a device in a worker
// (src/train/calibrate.h): the daemon has no kernels.
#pragma once

#include <string>

#include "server/inventory/inventory.h"
#include "server/supervisor/errand.h"
#include "src/base/result.h"

namespace trainyard::server {

/// Thread-safe.
class CalibrationRunner {
 public:
  CalibrationRunner(Supervisor& supervisor, StatePaths paths);

  /// `done` is called once, with the rates as JSON. RESOURCE_EXHAUSTED/CALIBRATION_BUSY;
  /// DEADLINE_EXCEEDED/CALIBRATION_TIMEOUT; INTERNAL/WORKER_LOST; the worker's.
  void run(const Device& device, int32_t threads, v1::Recipe::Precision precision,
           Done<std::string> done);
  void drain() { errands_.drain(); }

 private:
  ErrandRunner errands_;
};

}  // namespace trainyard::server
