#include "server/worker/node_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <system_error>

#include "src/base/disk_space.h"
#include "src/base/files.h"
#include "src/base/sha256.h"
#include "src/base/text.h"
#include "src/base/wait_for_stop.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kLockPause{200};

UniqueFd open_lock(const fs::path& path) {
  return UniqueFd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
}

bool try_lock(const UniqueFd& lock, int how) { return ::flock(lock.get(), how | LOCK_NB) == 0; }

/// Returns false if a stop is requested first.
bool wait_for_lock(const UniqueFd& lock, int how, const std::stop_token& stop) {
  while (!try_lock(lock, how)) {
    if (stop.stop_requested()) return false;
    wait_for_stop(stop, kLockPause);
  }
  return true;
}

/// Returns whether `path` still names the locked file, which another process may have deleted.
bool is_current(const UniqueFd& lock, const fs::path& path) {
  struct stat mine {};
  struct stat named {};
  return ::fstat(lock.get(), &mine) == 0 && ::stat(path.c_str(), &named) == 0 &&
         mine.st_ino == named.st_ino && mine.st_dev == named.st_dev;
}

fs::path with_ending(fs::path path, const char* ending) {
  path += ending;
  return path;
}

/// Returns the names in `folder` that end with `ending`, without the ending.
std::vector<std::string> names_with(const fs::path& folder, const std::string& ending) {
  std::vector<std::string> names;
  std::error_code ec;
  for (fs::directory_iterator it(folder, ec), end; !ec && it != end; it.increment(ec)) {
    std::string name = it->path().filename().string();
    if (!name.ends_with(ending)) continue;
    name.resize(name.size() - ending.size());
    if (is_plain_name(name)) names.push_back(std::move(name));
  }
  return names;
}

}  // namespace

bool is_plain_name(const std::string& name) {
  constexpr size_t kBytesMax = 128;
  return !name.empty() && name.size() <= kBytesMax && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
  });
}

WorkFolder::~WorkFolder() { remove(); }

void WorkFolder::remove() {
  if (!lock_) return;
  std::error_code ec;
  fs::remove_all(path_, ec);
  fs::remove(with_ending(path_, ".lock"), ec);
  lock_.reset();
}

Result<WorkFolder> NodeCache::make_work(const std::string& task) const {
  const fs::path folder = root_ / "work";
  if (Status s = local_files().create_directories(folder); !s.ok()) return std::move(s).error();
  for (const std::string& other : names_with(folder, ".lock")) {
    const fs::path path = with_ending(folder / other, ".lock");
    const UniqueFd lock = open_lock(path);
    if (!lock || !try_lock(lock, LOCK_EX) || !is_current(lock, path)) continue;
    std::error_code ec;
    fs::remove_all(folder / other, ec);
    fs::remove(path, ec);
  }
  WorkFolder work;
  work.path_ = folder / task;
  const fs::path path = with_ending(work.path_, ".lock");
  do {
    work.lock_ = open_lock(path);
    if (!work.lock_) return file_error("cannot create", path, errno);
    if (!try_lock(work.lock_, LOCK_EX)) {
      work.lock_.reset();
      return make_error(ErrorCode::kFailedPrecondition, "TASK_RUNNING",
                        "another worker of task " + quoted_value(task) + " runs on this host");
    }
  } while (!is_current(work.lock_, path));
  if (Status s = local_files().remove_all(work.path_); !s.ok()) return std::move(s).error();
  if (Status s = local_files().create_directories(work.path_); !s.ok()) {
    return std::move(s).error();
  }
  return work;
}

Result<CachedDataset> NodeCache::lock_dataset(const std::string& digest, const Pull& pull,
                                              const std::stop_token& stop) const {
  if (!is_sha256_hex(digest)) {
    return make_error(ErrorCode::kDataLoss, "WORKER_PROTOCOL_ERROR",
                      "the dataset's digest " + quoted_value(digest) + " is not valid");
  }
  if (Status s = local_files().create_directories(datasets()); !s.ok()) {
    return std::move(s).error();
  }
  CachedDataset locked{datasets() / digest, {}};
  const fs::path lock_path = with_ending(locked.folder, ".lock");
  locked.lock = open_lock(lock_path);
  if (!locked.lock) return file_error("cannot create", lock_path, errno);
  const Error stopped = make_error(ErrorCode::kCancelled, "STOPPED",
                                   "stopped while the dataset was being transferred");
  for (;;) {
    std::error_code ec;
    if (!wait_for_lock(locked.lock, LOCK_SH, stop)) return stopped;
    if (fs::exists(locked.folder, ec)) {
      (void)::futimens(locked.lock.get(), nullptr);
      return locked;
    }
    // Take the exclusive lock. Its previous holder may have pulled the dataset; otherwise this
    // worker continues with the files that are there.
    if (!wait_for_lock(locked.lock, LOCK_EX, stop)) return stopped;
    if (fs::exists(locked.folder, ec)) continue;
    const fs::path part = with_ending(locked.folder, ".tmp");
    if (Status s = local_files().create_directories(part); !s.ok()) return std::move(s).error();
    const MakeRoom room = [&](int64_t bytes) { make_room(bytes - bytes_below(part), digest); };
    if (Status s = pull(part, room); !s.ok()) return std::move(s).error();
    if (Status s = local_files().sync_directory(part); !s.ok()) return std::move(s).error();
    if (Status s = local_files().rename_durable(part, locked.folder); !s.ok()) {
      return std::move(s).error();
    }
  }
}

void NodeCache::make_room(int64_t bytes, const std::string& for_digest) const {
  struct Cached {
    std::string digest;
    int64_t bytes = 0;
    fs::file_time_type used;
  };
  std::vector<Cached> all;
  int64_t total = bytes;
  for (const std::string& digest : names_with(datasets(), ".lock")) {
    std::error_code ec;
    Cached cached{digest, 0, fs::last_write_time(with_ending(datasets() / digest, ".lock"), ec)};
    cached.bytes =
        bytes_below(datasets() / digest) + bytes_below(with_ending(datasets() / digest, ".tmp"));
    total += cached.bytes;
    if (digest != for_digest && cached.bytes > 0) all.push_back(std::move(cached));
  }
  std::ranges::sort(all, {}, &Cached::used);
  for (const Cached& cached : all) {
    if (total <= bytes_max_) return;
    const fs::path folder = datasets() / cached.digest;
    const UniqueFd lock = open_lock(with_ending(folder, ".lock"));
    if (!lock || !try_lock(lock, LOCK_EX)) continue;  // in use
    std::error_code ec;
    // Rename the folder before deleting it, because a folder with the dataset's name must be
    // complete.
    fs::remove_all(with_ending(folder, ".tmp"), ec);
    fs::rename(folder, with_ending(folder, ".tmp"), ec);
    fs::remove_all(with_ending(folder, ".tmp"), ec);
    if (!fs::exists(folder, ec)) total -= cached.bytes;
  }
  if (total > bytes_max_) {
    std::fprintf(
        stderr,
        "trainyard-worker: event=cache_limit_exceeded bytes=%lld bytes_max=%lld: all of it is "
        "in use\n",
        static_cast<long long>(total), static_cast<long long>(bytes_max_));
  }
}

}  // namespace trainyard
