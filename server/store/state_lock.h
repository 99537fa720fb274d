// server/store/state_lock.h: one daemon per state directory.
#pragma once

#include <filesystem>

#include "src/base/handle.h"
#include "src/base/result.h"

namespace trainyard::server {

/// Holds flock() on <state>/lock until it is destroyed; the kernel releases it with the process, so
/// a crash leaves no stale lock. The file has the owner's pid, for the error message of a second
/// daemon.
class StateLock {
 public:
  /// FAILED_PRECONDITION/STATE_DIR_LOCKED names the pid; PERMISSION_DENIED/STATE_DIR_NOT_WRITABLE.
  static Result<StateLock> take(const std::filesystem::path& state_dir);
  /// The same for who changes nothing: without a file of a lock there is none to hold.
  static Result<StateLock> hold(const std::filesystem::path& state_dir);

 private:
  explicit StateLock(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace trainyard::server
