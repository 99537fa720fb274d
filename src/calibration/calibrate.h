// src/calibration/calibrate.h: measures the rates of a device from which jobs on it are forecast
// (src/forecast/rates.h). It runs a few steps of several networks, timed node by node, and lets the
// loader prepare some rows.
#pragma once

#include <stop_token>

#include "src/base/result.h"
#include "src/forecast/rates.h"
#include "src/runtime/backend.h"

namespace trainyard {

struct CalibrateOptions {
  Precision precision = Precision::kFp32;
  // Approximate: the most informative networks run first, and a network that has begun is finished.
  // The networks with Probe::needed are measured in any case.
  double seconds_max = 3;
};

/// The device must be idle otherwise, else it appears too slow; a low percentile of a node's runs
/// limits the effect. CANCELLED/STOPPED soon after `stop` is requested.
Result<DeviceRates> calibrate(Backend& device, const CalibrateOptions& options,
                              const std::stop_token& stop = {});

}  // namespace trainyard
