#include "server/store/state_lock.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>

namespace trainyard::server {
namespace {

// If a daemon is killed between the fork and the exec of a child process, the child holds the
// inherited lock until its exec. So a lock whose owner has ended is tried again for up to 2
// seconds.
constexpr int kLockAttemptsMax = 200;
constexpr std::chrono::milliseconds kLockRetryInterval{10};

std::string read_pid(int fd) {
  char text[32] = {};
  const ssize_t n = ::pread(fd, text, sizeof text - 1, 0);
  return {text, n > 0 ? std::strcspn(text, "\n") : 0};
}

/// Returns whether the process with this PID may still run; true if the PID is unknown.
bool may_run(const std::string& text) {
  pid_t pid = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), pid);
  return failed != std::errc() || pid <= 0 || ::kill(pid, 0) == 0 || errno != ESRCH;
}

Status lock_file(int fd, const std::filesystem::path& state_dir) {
  for (int attempt = 0;; ++attempt) {
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return {};
    if (errno != EWOULDBLOCK) {
      return make_error(
          ErrorCode::kUnavailable, "STATE_DIR_LOCK_FAILED",
          "cannot lock " + (state_dir / "lock").string() + ": " + std::strerror(errno));
    }
    const std::string pid = read_pid(fd);
    if (attempt < kLockAttemptsMax && !may_run(pid)) {
      std::this_thread::sleep_for(kLockRetryInterval);
      continue;
    }
    Error e =
        make_error(ErrorCode::kFailedPrecondition, "STATE_DIR_LOCKED",
                   "state directory " + state_dir.string() + " is in use by the daemon with pid " +
                       (pid.empty() ? "unknown" : pid) + "; stop it or choose another directory");
    e.metadata["pid"] = pid;
    return e;
  }
}

}  // namespace

Result<StateLock> StateLock::take(const std::filesystem::path& state_dir) {
  const std::filesystem::path path = state_dir / "lock";
  // Close on exec: a worker must not keep the lock after the daemon has ended.
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

Result<StateLock> StateLock::lock_existing(const std::filesystem::path& state_dir) {
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
