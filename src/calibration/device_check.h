// src/calibration/device_check.h: is a device to be trusted? Small networks of every kind are
// trained on it for a few steps and compared with another backend's: losses and weights behind
// them, and the gradients of a first step, tensor by tensor. The daemon asks this of a GPU before
// the first job starts on it, people by `trainyard local check`.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "src/runtime/backend.h"

namespace trainyard {

struct DeviceCheckRow {
  std::string network;  // "resnet18 bf16"
  double loss = 0;      // largest relative difference of a step's loss
  double weights = 0;   // of the weights: norm of the difference over that of what training changed
  double gradients = 0;      // of a first step: of the worst tensor, as a share of what is right
  bool repeats = false;      // a second run gave the same bits
  std::string failure = {};  // what is wrong, in a sentence; empty: nothing
};

struct DeviceCheck {
  std::vector<DeviceCheckRow> rows;
  /// The first failure, with its network; empty if the device is to be trusted.
  std::string failure() const;
};

/// Takes a second or two where `judge` is the cpu backend; with the reference loops, ten. A fault
/// of the device (CudaError) is thrown. `on_row` gets each row when it is computed and returns
/// whether to continue; without it all are computed.
DeviceCheck check_device(Backend& device, Backend& judge,
                         const std::function<bool(const DeviceCheckRow&)>& on_row = nullptr);

}  // namespace trainyard
