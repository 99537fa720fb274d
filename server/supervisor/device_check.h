// server/supervisor/device_check.h: whether a GPU computes what it should, asked of a worker: the
// daemon makes no CUDA context.
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

  /// `done` is called once. FAILED_PRECONDITION/DEVICE_CHECK_FAILED if the device computes
  /// something else than the CPU; DEVICE_BUSY, CUDA_UNAVAILABLE and the like if it cannot be used;
  /// what its fault says.
  void run(const Device& device, int threads, CheckedInventory::Done done);
  void drain() { errands_.drain(); }

 private:
  ErrandRunner errands_;
};

}  // namespace trainyard::server
