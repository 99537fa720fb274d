// server/store/state_lock.h: one daemon per state directory.
#pragma once

#include <filesystem>

#include "src/base/handle.h"
#include "src/base/result.h"

namespace trainyard::server {

/// Holds flock() on <state>/lock until it goes; the kernel drops it with the process, so no crash
/// leaves a stale one. The file holds the owner's pid for the message of the one that is refused.
class StateLock {
 public:
  /// FAILED_PRECONDITION/STATE_DIR_LOCKED names the pid; PERMISSION_DENIED/STATE_DIR_NOT_WRITABLE.
  static Result<StateLock> take(const std::filesystem::path& state_dir);

 private:
  explicit StateLock(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace trainyard::server
