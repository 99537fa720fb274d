// server/inventory/fake_inventory.h: devices by script, for tests of everything above.
#pragma once

#include <mutex>
#include <utility>

#include "server/inventory/inventory.h"

namespace trainyard::server {

class FakeInventory final : public Inventory {
 public:
  explicit FakeInventory(Devices devices) : devices_(std::move(devices)) {}
  Devices read() override {
    const std::lock_guard lock(mu_);
    return devices_;
  }
  /// What read() answers from now on: a lost GPU, a driver that restarts.
  void set(Devices devices) {
    const std::lock_guard lock(mu_);
    devices_ = std::move(devices);
  }

 private:
  std::mutex mu_;
  Devices devices_;  // GUARDED_BY(mu_)
};

}  // namespace trainyard::server
