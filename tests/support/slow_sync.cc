// tests/support/slow_sync.cc: a library for LD_PRELOAD in which every file sync takes
// TRAINYARD_SYNC_DELAY_MS longer, as on a slow disk, without using the processor. Another such
// library may be loaded before it (tests/fault/kill_points.cc).
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <thread>

namespace {

template <typename F>
F next_of(const char* name) {
  return reinterpret_cast<F>(::dlsym(RTLD_NEXT, name));
}

void delay() {
  static const std::chrono::milliseconds time = [] {
    const char* const text = std::getenv("TRAINYARD_SYNC_DELAY_MS");
    return std::chrono::milliseconds(text == nullptr ? 0 : std::atoi(text));
  }();
  const int before = errno;
  std::this_thread::sleep_for(time);
  errno = before;
}

}  // namespace

extern "C" {

int fsync(int fd) {
  static const auto next = next_of<int (*)(int)>("fsync");
  delay();
  return next(fd);
}
int fdatasync(int fd) {
  static const auto next = next_of<int (*)(int)>("fdatasync");
  delay();
  return next(fd);
}
int syncfs(int fd) noexcept {
  static const auto next = next_of<int (*)(int)>("syncfs");
  delay();
  return next(fd);
}
int sync_file_range(int fd, off64_t offset, off64_t size, unsigned int flags) {
  static const auto next = next_of<int (*)(int, off64_t, off64_t, unsigned int)>("sync_file_range");
  if ((flags & SYNC_FILE_RANGE_WAIT_AFTER) != 0) delay();
  return next(fd, offset, size, flags);
}
int msync(void* address, size_t size, int flags) {
  static const auto next = next_of<int (*)(void*, size_t, int)>("msync");
  if ((flags & MS_SYNC) != 0) delay();
  return next(address, size, flags);
}

}  // extern "C"
