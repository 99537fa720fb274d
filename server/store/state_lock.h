// server/store/state_lock.h: ensures that at most one daemon uses a state directory.
#pragma once

#include <filesystem>

#include "src/base/handle.h"
#include "src/base/result.h"

namespace trainyard::server {

/// Holds flock() on <state>/lock until the object is destroyed. The kernel releases the lock when
/// the process ends, so a crash leaves no stale lock. The file contains the owner's pid for the
/// error message of a second daemon.
class StateLock {
 public:
  /// Takes the lock. Errors: FAILED_PRECONDITION/STATE_DIR_LOCKED, which names the pid;
  /// PERMISSION_DENIED/STATE_DIR_NOT_WRITABLE.
  static Result<StateLock> take(const std::filesystem::path& state_dir);
  /// Takes the lock for a program that changes nothing in the directory. It does not create a
  /// missing lock file; then it succeeds without a lock.
  static Result<StateLock> lock_existing(const std::filesystem::path& state_dir);

 private:
  explicit StateLock(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace trainyard::server
