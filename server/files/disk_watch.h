// server/files/disk_watch.h: checks whether the state folder's disk has room for new data.
//
// Running jobs may fill the disk beyond the limit, which exists to leave them room. The file system
// is queried at each check, which takes 1 us, so freed space counts immediately.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "src/base/disk_space.h"
#include "src/base/mutex.h"
#include "src/base/result.h"

namespace trainyard::server {

/// The bytes that the daemon may still write to a folder's disk; nothing if that is not known.
using FreeBytes = std::function<std::optional<int64_t>(const std::filesystem::path&)>;

/// Thread-safe.
class DiskWatch {
 public:
  /// With `bytes_min` 0 there is always room.
  DiskWatch(std::filesystem::path folder, int64_t bytes_min, FreeBytes free_bytes);
  /// Error: RESOURCE_EXHAUSTED/DISK_LOW, with what is free and what is needed, if less than
  /// `bytes_min` would be left once `more_bytes` are stored.
  Status check(int64_t more_bytes = 0);
  /// Starts to check every `pause`, so that the log says at once when space becomes low. The
  /// destructor ends this.
  void start(std::chrono::milliseconds pause);
  /// Returns a sentence for the operator if less than `bytes_min` is free.
  std::optional<std::string> warning();

 private:
  /// Returns the free bytes and logs changes; nothing if the check is disabled or the free space is
  /// not known.
  std::optional<int64_t> query_free();

  const std::filesystem::path folder_;
  const int64_t bytes_min_;
  const FreeBytes free_bytes_;
  Mutex mu_;
  bool low_ TRAINYARD_GUARDED_BY(mu_) = false;  // the state that was logged last
  std::jthread watcher_;                        // last, because it uses the others
};

}  // namespace trainyard::server
