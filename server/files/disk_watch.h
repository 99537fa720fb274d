// server/files/disk_watch.h: whether the state folder's disk has room for something new.
//
// What already runs may fill the disk below the bound: the bound is there to leave it room. The
// file system is asked each time, which costs a microsecond, so freed space counts at once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "src/base/disk_space.h"
#include "src/base/mutex.h"
#include "src/base/result.h"

namespace trainyard::server {

/// Bytes that the daemon may still write to a folder's disk; nothing if that cannot be told.
using FreeBytes = std::function<std::optional<int64_t>(const std::filesystem::path&)>;

/// Thread-safe.
class DiskWatch {
 public:
  /// `bytes_min` 0: there is always room.
  DiskWatch(std::filesystem::path folder, int64_t bytes_min, FreeBytes free_bytes);
  /// RESOURCE_EXHAUSTED/DISK_LOW, with what is free and what is needed, if less than `bytes_min`
  /// would be left once `more_bytes` are stored.
  Status check(int64_t more_bytes = 0);
  /// A sentence for the operator while less than `bytes_min` is free.
  std::optional<std::string> warning();

 private:
  /// Nothing if the disk is not to be looked at.
  std::optional<int64_t> look();

  const std::filesystem::path folder_;
  const int64_t bytes_min_;
  const FreeBytes free_bytes_;
  Mutex mu_;
  bool low_ TRAINYARD_GUARDED_BY(mu_) = false;  // as the log has it
};

}  // namespace trainyard::server
