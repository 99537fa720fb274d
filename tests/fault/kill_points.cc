// tests/fault/kill_points.cc: a library for LD_PRELOAD that ends a program at an exact point:
// before or after the k-th time that the program writes, syncs, renames or deletes a file of the
// state folder, starts a process, or passes a secret to one. The programs are the released ones and
// contain no code for this.
//
//   TRAINYARD_POINTS_OF     the program's name; in other processes the library does nothing
//   TRAINYARD_POINTS_UNDER  the state folder; other files do not count
//   TRAINYARD_POINTS_LOG    the file to which each point is written, one per line, in order
//   TRAINYARD_POINTS_KILL   "POINT#k before" or "POINT#k after", with POINT as in the log
//   TRAINYARD_POINTS_ONCE   a file that must not exist; it is created before the kill, so that
//                           only one process is ended
//
// A point is an operation and its file. Parts that differ between runs are replaced by *, as in
// "rename models/*.tmp" and "fdatasync trainyard.db-wal".
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

namespace {

template <typename F>
F real(const char* name) {
  return reinterpret_cast<F>(::dlsym(RTLD_NEXT, name));
}

std::string setting(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

struct Points {
  Points() {
    if (setting("TRAINYARD_POINTS_OF") != program_invocation_short_name) return;
    under = setting("TRAINYARD_POINTS_UNDER") + "/";
    once = setting("TRAINYARD_POINTS_ONCE");
    const std::string kill = setting("TRAINYARD_POINTS_KILL");
    if (const size_t mark = kill.rfind('#'); mark != std::string::npos) {
      kill_point = kill.substr(0, mark);
      kill_count = std::atoi(kill.c_str() + mark + 1);
      kill_after = kill.ends_with(" after");
    }
    if (const std::string path = setting("TRAINYARD_POINTS_LOG"); !path.empty()) {
      log = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    }
    pid = ::getpid();
  }
  /// Returns false in other programs, and in a forked child before it executes another program:
  /// there, locks held by the parent's other threads, such as malloc's, stay locked forever.
  bool on() const { return pid == ::getpid(); }

  pid_t pid = 0;
  std::string under, once, kill_point;
  int kill_count = 0;
  bool kill_after = false;
  int log = -1;
  std::mutex mu;
  std::map<std::string, int> counts;
};

Points& points() {
  static auto* const all = new Points;  // other threads may use it during exit
  return *all;
}

thread_local bool inside = false;  // true inside the library, whose own operations are no points

/// Replaces identifiers and numbers by *: "models/0a1b.tmp/x" becomes "models/*.tmp/x".
std::string general(const std::string& path) {
  std::string out;
  for (size_t at = 0; at < path.size();) {
    size_t end = at;
    bool digit = false;
    while (end < path.size() && std::isalnum(static_cast<unsigned char>(path[end]))) {
      digit |= std::isdigit(static_cast<unsigned char>(path[end])) != 0;
      ++end;
    }
    if (end == at) {
      out += path[at++];
    } else {
      out += digit ? "*" : path.substr(at, end - at);
      at = end;
    }
  }
  return out;
}

[[noreturn]] void die() {
  ::kill(::getpid(), SIGKILL);
  for (;;) ::pause();
}

/// One operation: the constructor runs before it, the destructor after it.
class Point {
 public:
  Point(const char* operation, const std::string& path) : outer_(inside) {
    Points& all = points();
    if (outer_ || !all.on()) return;
    const int saved = errno;
    inside = true;
    if (path.starts_with("pipe:")) {
      note(operation, "pipe");
    } else if (path.starts_with(all.under)) {
      note(operation, general(path.substr(all.under.size())));
    }
    errno = saved;
  }
  ~Point() {
    if (dies_after_) die();
    inside = outer_;
  }
  Point(const Point&) = delete;

  static std::string of_descriptor(int fd) {
    if (inside || !points().on()) return "";
    const int saved = errno;
    struct stat info {};
    char target[PATH_MAX];
    const std::string link = "/proc/self/fd/" + std::to_string(fd);
    ssize_t size = -1;
    if (::fstat(fd, &info) == 0 && !S_ISSOCK(info.st_mode) && !S_ISCHR(info.st_mode)) {
      size = ::readlink(link.c_str(), target, sizeof target);
    }
    errno = saved;
    return size > 0 ? std::string(target, static_cast<size_t>(size)) : "";
  }

 private:
  void note(const char* operation, const std::string& what) {
    Points& all = points();
    const std::string point = std::string(operation) + " " + what;
    const std::lock_guard lock(all.mu);
    const int count = ++all.counts[point];
    if (all.log >= 0) (void)!::write(all.log, (point + "\n").c_str(), point.size() + 1);
    if (point != all.kill_point || count != all.kill_count) return;
    if (!all.once.empty()) {
      const int mark = ::open(all.once.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
      if (mark < 0) return;
      ::close(mark);
    }
    if (!all.kill_after) die();
    dies_after_ = true;
  }

  bool outer_;
  bool dies_after_ = false;
};

}  // namespace

extern "C" {

int rename(const char* from, const char* to) {
  static const auto next = real<int (*)(const char*, const char*)>("rename");
  const Point point("rename", from);
  return next(from, to);
}
int unlink(const char* path) {
  static const auto next = real<int (*)(const char*)>("unlink");
  const Point point("remove", path);
  return next(path);
}
int remove(const char* path) {
  static const auto next = real<int (*)(const char*)>("remove");
  const Point point("remove", path);
  return next(path);
}
int unlinkat(int folder, const char* name, int flags) {
  static const auto next = real<int (*)(int, const char*, int)>("unlinkat");
  const std::string path = folder == AT_FDCWD || name[0] == '/'
                               ? std::string(name)
                               : Point::of_descriptor(folder) + "/" + name;
  const Point point("remove", path);
  return next(folder, name, flags);
}
int fsync(int fd) {
  static const auto next = real<int (*)(int)>("fsync");
  const Point point("sync", Point::of_descriptor(fd));
  return next(fd);
}
int fdatasync(int fd) {
  static const auto next = real<int (*)(int)>("fdatasync");
  const Point point("sync", Point::of_descriptor(fd));
  return next(fd);
}
ssize_t pwrite(int fd, const void* data, size_t size, off_t offset) {
  static const auto next = real<ssize_t (*)(int, const void*, size_t, off_t)>("pwrite");
  const Point point("write", Point::of_descriptor(fd));
  return next(fd, data, size, offset);
}
ssize_t pwrite64(int fd, const void* data, size_t size, off64_t offset) {
  static const auto next = real<ssize_t (*)(int, const void*, size_t, off64_t)>("pwrite64");
  const Point point("write", Point::of_descriptor(fd));
  return next(fd, data, size, offset);
}
ssize_t write(int fd, const void* data, size_t size) {
  static const auto next = real<ssize_t (*)(int, const void*, size_t)>("write");
  const Point point("write", Point::of_descriptor(fd));
  return next(fd, data, size);
}
int open(const char* path, int flags, ...) {
  static const auto next = real<int (*)(const char*, int, ...)>("open");
  va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  const std::string_view name = path;
  // The daemon reads the start time of a process that it has just started or will adopt.
  if (!name.starts_with("/proc/") || !name.ends_with("/stat")) return next(path, flags, mode);
  const Point point("start", points().under + "worker");
  return next(path, flags, mode);
}

}  // extern "C"
