#include "server/files/disk_watch.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "src/base/text.h"
#include "src/base/wait_for_stop.h"

namespace trainyard::server {

DiskWatch::DiskWatch(std::filesystem::path folder, int64_t bytes_min, FreeBytes free_bytes)
    : folder_(std::move(folder)), bytes_min_(bytes_min), free_bytes_(std::move(free_bytes)) {}

void DiskWatch::start(std::chrono::milliseconds pause) {
  watcher_ = std::jthread([this, pause](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      (void)query_free();
      wait_for_stop(stop, pause);
    }
  });
}

std::optional<int64_t> DiskWatch::query_free() {
  if (bytes_min_ == 0) return std::nullopt;
  const std::optional<int64_t> free = free_bytes_(folder_);
  if (!free) return std::nullopt;
  const bool low = *free < bytes_min_;
  bool changed = false;
  {
    const MutexLock lock(mu_);
    changed = std::exchange(low_, low) != low;
  }
  if (changed && low) {
    spdlog::error("event=disk_low free_bytes={} disk_free_bytes_min={}", *free, bytes_min_);
  } else if (changed) {
    spdlog::info("event=disk_has_room free_bytes={} disk_free_bytes_min={}", *free, bytes_min_);
  }
  return free;
}

Status DiskWatch::check(int64_t more_bytes) {
  const std::optional<int64_t> free = query_free();
  if (!free || *free - more_bytes >= bytes_min_) return {};
  const std::string bound = human_bytes(bytes_min_);
  const std::string needed = more_bytes > 0
                                 ? "this needs " + human_bytes(more_bytes) +
                                       " in addition to the " + bound + " that must stay free"
                                 : "at least " + bound + " must stay free";
  Error e = make_error(
      ErrorCode::kResourceExhausted, "DISK_LOW",
      "the server's disk has " + human_bytes(*free) + " free, and " + needed +
          " for running jobs: delete datasets, models and jobs that are no longer needed, or "
          "ask its operator for space, and try again");
  e.metadata = {{"free_bytes", std::to_string(*free)},
                {"needed_bytes", std::to_string(bytes_min_ + more_bytes)}};
  return e;
}

std::optional<std::string> DiskWatch::warning() {
  const std::optional<int64_t> free = query_free();
  if (!free || *free >= bytes_min_) return std::nullopt;
  return "The disk of the state folder has " + human_bytes(*free) + " free, less than " +
         human_bytes(bytes_min_) +
         " (disk_free_bytes_min): uploads, datasets, models and jobs are refused until space is "
         "freed. Running jobs continue.";
}

}  // namespace trainyard::server
