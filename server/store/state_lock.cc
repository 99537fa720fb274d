#include "server/store/state_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace trainyard::server {
namespace {

Status lock_file(int fd, const std::filesystem::path& state_dir) {
  if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return {};
  if (errno != EWOULDBLOCK)
    return make_error(ErrorCode::kUnavailable, "STATE_DIR_LOCK_FAILED",
                      "cannot lock " + (state_dir / "lock").string() + ": " + std::strerror(errno));
  char text[32] = {};
  const ssize_t n = ::pread(fd, text, sizeof text - 1, 0);
  const std::string pid(text, n > 0 ? std::strcspn(text, "\n") : 0);
  Error e =
      make_error(ErrorCode::kFailedPrecondition, "STATE_DIR_LOCKED",
                 "state directory " + state_dir.string() + " is in use by the daemon with pid " +
                     (pid.empty() ? "unknown" : pid) + "; stop it or choose another directory");
  e.metadata["pid"] = pid;
  return e;
}

}  // namespace

Result<StateLock> StateLock::take(const std::filesystem::path& state_dir) {
  const std::filesystem::path path = state_dir / "lock";
  // Close on exec: a worker must not keep the lock when the daemon is gone.
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0640));
  if (!fd)
    return make_error(ErrorCode::kPermissionDenied, "STATE_DIR_NOT_WRITABLE",
                      "state directory " + state_dir.string() +
                          ": cannot open lock: " + std::strerror(errno) +
                          "; give the daemon's user write access or choose another directory");
  if (Status s = lock_file(fd.get(), state_dir); !s.ok()) return s.error();
  const std::string pid = std::to_string(::getpid()) + "\n";
  if (::ftruncate(fd.get(), 0) != 0 || ::pwrite(fd.get(), pid.data(), pid.size(), 0) < 0) {
    // If the disk is full, the lock works without the pid, which only makes a message less helpful.
  }
  return StateLock(std::move(fd));
}

Result<StateLock> StateLock::hold(const std::filesystem::path& state_dir) {
  const std::filesystem::path path = state_dir / "lock";
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd && errno != ENOENT)
    return make_error(ErrorCode::kPermissionDenied, "STATE_DIR_NOT_READABLE",
                      "state directory " + state_dir.string() + ": cannot open lock: " +
                          std::strerror(errno) + "; run this as the daemon's user");
  if (fd) {
    if (Status s = lock_file(fd.get(), state_dir); !s.ok()) return s.error();
  }
  return StateLock(std::move(fd));
}

}  // namespace trainyard::server
