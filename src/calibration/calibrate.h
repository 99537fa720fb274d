// src/calibration/calibrate.h: measures the rates of a device by which jobs on it are forecast
// (src/forecast/rates.h): some networks take a few steps, timed node by node, and the loader makes
// some rows.
#pragma once

#include <stop_token>

#include "src/base/result.h"
#include "src/forecast/rates.h"
#include "src/runtime/backend.h"

namespace trainyard {

struct CalibrateOptions {
  Precision precision = Precision::kFp32;
  // About: the networks come in the order of what they tell, and a last one that has begun ends.
  // At least the first of each kind of op are measured in any case.
  double seconds_max = 3;
};

/// The device computes nothing else meanwhile, else it looks slower than it is; of several runs of
/// a node a fast one counts. CANCELLED/STOPPED soon after `stop` is requested.
Result<DeviceRates> calibrate(Backend& device, const CalibrateOptions& options,
                              const std::stop_token& stop = {});

}  // namespace trainyard
