// server/inventory/fake_inventory.h: an inventory with devices that a test sets.
#pragma once

#include <utility>

#include "server/inventory/inventory.h"
#include "src/base/mutex.h"

namespace trainyard::server {

class FakeInventory final : public Inventory {
 public:
  explicit FakeInventory(Devices devices) : devices_(std::move(devices)) {}
  Devices read() override {
    const MutexLock lock(mu_);
    return devices_;
  }
  /// Sets the devices that read() returns from now on, for example without a lost GPU.
  void set(Devices devices) {
    const MutexLock lock(mu_);
    devices_ = std::move(devices);
  }

 private:
  Mutex mu_;
  Devices devices_ TRAINYARD_GUARDED_BY(mu_);
};

}  // namespace trainyard::server
