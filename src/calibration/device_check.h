// src/calibration/device_check.h: checks whether a device computes correctly. It trains small
// networks of every kind for a few steps and compares losses, final weights and the first step's
// gradients, tensor by tensor, with those of another backend. The daemon checks a GPU so before the
// first job starts on it; users run `trainyard local check`.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "src/runtime/backend.h"

namespace trainyard {

struct DeviceCheckRow {
  std::string network;  // the network's name, such as "resnet18 bf16"
  double loss = 0;      // largest relative difference of a step's loss
  double weights = 0;   // norm of the weights' difference over the norm of their change by training
  double gradients = 0;  // first step: the worst tensor's difference as a share of its tolerance
  bool repeats = false;  // a second run gave bit-identical results
  std::string failure = {};  // a sentence that describes the failure; empty: none
};

struct DeviceCheck {
  std::vector<DeviceCheckRow> rows;
  /// Returns the first failure, with its network; empty if all networks passed.
  std::string failure() const;
};

/// Takes one to two seconds if `judge` is the cpu backend, about ten with the reference backend.
/// Throws CudaError if the device fails. `on_row` gets each row as soon as it is computed and
/// returns whether to continue; without `on_row` all rows are computed.
DeviceCheck check_device(Backend& device, Backend& judge,
                         const std::function<bool(const DeviceCheckRow&)>& on_row = nullptr);

}  // namespace trainyard
