// server/inventory/drained_inventory.h: an inventory in which an operator can drain devices:
// neither a job nor a check starts on them. CheckedInventory wraps it, and does not check devices
// that cannot run jobs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/inventory/inventory.h"
#include "src/base/mutex.h"

namespace trainyard::server {

struct Drain {
  std::string device;  // drain_key() of a device, which need not exist
  std::string reason;  // becomes Device::reason while the device is drained
  bool vacate = false;
};

/// Returns the key by which a drained device is recognized: a GPU's UUID, which survives a
/// renumbering, or the name of a device that has no UUID.
inline const std::string& drain_key(const Device& device) {
  return device.uuid.empty() ? device.name : device.uuid;
}

class DrainedInventory final : public Inventory {
 public:
  explicit DrainedInventory(std::unique_ptr<Inventory> inner) : inner_(std::move(inner)) {}
  /// Replaces all drains.
  void set(std::vector<Drain> drains);

  Devices read() override;
  void doubt(const std::string& device) override { inner_->doubt(device); }
  void set_inherited(const std::string& device, bool inherited) override {
    inner_->set_inherited(device, inherited);
  }

 private:
  const std::unique_ptr<Inventory> inner_;
  Mutex mu_;
  std::vector<Drain> drains_ TRAINYARD_GUARDED_BY(mu_);
};

}  // namespace trainyard::server
