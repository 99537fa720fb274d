#include "server/inventory/drained_inventory.h"

#include <algorithm>
#include <utility>

namespace trainyard::server {

void DrainedInventory::set(std::vector<Drain> drains) {
  const MutexLock lock(mu_);
  drains_ = std::move(drains);
}

Devices DrainedInventory::read() {
  Devices devices = inner_->read();
  const MutexLock lock(mu_);
  for (const Drain& drain : drains_) {
    const auto device = std::ranges::find(devices.devices, drain.device, drain_key);
    if (device == devices.devices.end()) continue;
    device->drained = true;
    device->vacate = drain.vacate;
    device->schedulable = false;
    device->health = DeviceHealth::kQuarantined;
    device->reason = drain.reason;
  }
  return devices;
}

}  // namespace trainyard::server
