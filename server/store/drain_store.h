// server/store/drain_store.h: devices on which nothing starts, by command. Thread-safe; see
// server/store/store.h.
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
  std::string owner;    // who asked
  bool vacate = false;  // its jobs return to the queue
  int64_t time_us = 0;  // filled by the store
};

class DrainStore {
 public:
  explicit DrainStore(StoreCore& core) : core_(core) {}
  /// Replaces what was stored of the device.
  Status put(const DeviceDrain& drain);
  /// A missing one is not an error.
  Status remove(const std::string& device);
  Result<std::vector<DeviceDrain>> list() const;

 private:
  StoreCore& core_;
};

}  // namespace trainyard::server
