// server/store/drain_store.h: stores which devices an operator has drained: no job starts on them.
// Thread-safe; see server/store/store.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/store/done.h"
#include "src/base/result.h"

namespace trainyard::server {

class StoreCore;

struct DeviceDrain {
  std::string device;  // its UUID, or its name if it has none
  std::string name;    // devices/{device} when it was drained
  std::string model;
  std::string reason;   // as given; may be empty
  std::string owner;    // who drained the device
  bool vacate = false;  // whether its running jobs return to the queue
  int64_t time_us = 0;  // filled by the store
};

class DrainStore {
 public:
  explicit DrainStore(StoreCore& core) : core_(core) {}
  /// Stores the drain and replaces an earlier one of the same device.
  Status put(const DeviceDrain& drain);
  /// Removes the device's drain. It is no error if there is none.
  Status remove(const std::string& device);
  Result<std::vector<DeviceDrain>> list() const;

 private:
  StoreCore& core_;
};

}  // namespace trainyard::server
