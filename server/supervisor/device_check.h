// server/supervisor/device_check.h: checks in a worker that a GPU computes correctly: the daemon
// creates no CUDA context.
#pragma once

#include <string>

#include "server/inventory/checked_inventory.h"
#include "server/supervisor/errand.h"
#include "src/base/result.h"

namespace trainyard::server {

/// Thread-safe.
class DeviceCheckRunner {
 public:
  DeviceCheckRunner(Supervisor& supervisor, StatePaths paths);

  /// `done` is called once. FAILED_PRECONDITION/DEVICE_CHECK_FAILED if the device's results differ
  /// from the CPU's; DEVICE_BUSY, CUDA_UNAVAILABLE and similar if it cannot be used; or its fault.
  void run(const Device& device, int threads, CheckedInventory::Done done);
  void drain() { errands_.drain(); }

 private:
  ErrandRunner errands_;
};

}  // namespace trainyard::server
