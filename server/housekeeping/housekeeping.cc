#include "server/housekeeping/housekeeping.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <utility>
#include <vector>

#include "server/config/log.h"
#include "server/dispatch/job_files.h"
#include "src/base/wait_for_stop.h"

namespace trainyard::server {
namespace {

namespace fs = std::filesystem;

constexpr int kFoldersPerPiece = 256;
constexpr int64_t kAuditPerPiece = 1000;
constexpr int64_t kRestUsMax = 200'000;
constexpr std::chrono::milliseconds kBackupPause{500};

/// Deletes all but the newest output of workers that ended badly or printed much.
void prune_logs(const fs::path& folder) {
  constexpr size_t kLogFilesMax = 200;
  std::vector<std::pair<fs::file_time_type, fs::path>> files;
  std::error_code ec;
  for (fs::directory_iterator it(folder, ec), end; !ec && it != end; it.increment(ec)) {
    std::error_code gone;
    files.emplace_back(it->last_write_time(gone), it->path());
  }
  std::sort(files.rbegin(), files.rend());
  for (size_t i = kLogFilesMax; i < files.size(); ++i) fs::remove(files[i].second, ec);
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code ec;
  for (fs::directory_iterator it(folder, ec), end; !ec && it != end; it.increment(ec)) {
    names.push_back(it->path().filename().string());
  }
  return names;
}

}  // namespace

void Housekeeping::start(int64_t pause_ms) {
  thread_ = std::jthread([this, pause_ms](const std::stop_token& stop) {
    // A task that fails must prevent neither the other tasks nor its own next run.
    const auto guarded = [](const auto& task) {
      try {
        task();
      } catch (const std::exception& e) {
        spdlog::error("event=housekeeping_fault {}", kv("what", e.what()));
      }
    };
    guarded([&] { tidy_jobs(stop); });
    guarded([&] { tidy_models(stop); });
    while (!stop.stop_requested()) {
      guarded([&] { prune_logs(parts_.paths.logs()); });
      guarded([&] { parts_.jumps.observe(); });
      guarded([&] { apply_rules(stop); });
      guarded([&] { remove_old_audit(stop); });
      wait_for_stop(stop, std::chrono::milliseconds(pause_ms));
    }
  });
}

void Housekeeping::stop() {
  if (!thread_.joinable()) return;
  thread_.request_stop();
  thread_.join();
}

bool Housekeeping::rest(const std::stop_token& stop, int64_t began_us) const {
  const int64_t took_us = parts_.clock.steady_us() - began_us;
  wait_for_stop(stop, std::chrono::microseconds(std::clamp<int64_t>(took_us, 0, kRestUsMax)));
  while (parts_.backing_up && !stop.stop_requested()) wait_for_stop(stop, kBackupPause);
  return !stop.stop_requested();
}

void Housekeeping::tidy_jobs(const std::stop_token& stop) {
  const std::vector<std::string> uids = names_in(parts_.paths.root() / "jobs");
  int64_t tidied = 0;
  int64_t began_us = parts_.clock.steady_us();
  for (size_t i = 0; i < uids.size(); ++i) {
    if (i % kFoldersPerPiece == 0) {
      if (!rest(stop, began_us)) return;
      began_us = parts_.clock.steady_us();
    }
    if (!has_leftovers(parts_.paths, uids[i])) continue;
    const Result<Job> job = parts_.store.jobs().find_uid(uids[i]);
    // A folder without a row belongs to a fork that is being created, or is left to CollectGarbage.
    if (!job.ok() || !is_terminal(job->state)) continue;
    tidy_ended_job(parts_.paths, uids[i], job->state == JobState::kSucceeded);
    ++tidied;
  }
  if (tidied > 0) spdlog::info("event=job_leftovers_deleted jobs={}", tidied);
}

void Housekeeping::tidy_models(const std::stop_token& stop) {
  for (const std::string& name : names_in(parts_.paths.root() / "models")) {
    if (stop.stop_requested()) return;
    const fs::path path(name);
    if (path.extension() != ".tmp" && path.extension() != ".old") continue;
    const Result<Job> job = parts_.store.jobs().find_uid(path.stem().string());
    if (!job.ok() || !is_terminal(job->state)) continue;
    tidy_ended_job(parts_.paths, job->uid, job->state == JobState::kSucceeded);
  }
}

void Housekeeping::apply_rules(const std::stop_token& stop) {
  const auto stopped = [&] { return stop.stop_requested() || parts_.backing_up; };
  const auto apply = [&](const auto& list, const auto& change) {
    EndedJob after;
    for (bool first = true;; first = false) {
      const int64_t began_us = parts_.clock.steady_us();
      const Result<std::vector<EndedJob>> jobs = list(first ? nullptr : &after);
      if (!jobs.ok()) {
        spdlog::warn("event=retention_rule_not_applied {}", kv("message", jobs.error().message));
        return;
      }
      if (jobs->empty()) return;
      after = jobs->back();
      const std::vector<Status> changed = change(*jobs);
      for (size_t i = 0; i < changed.size(); ++i) {
        if (changed[i].ok() || changed[i].error().reason == Retention::kStopped) continue;
        spdlog::warn("event=retention_rule_not_applied {} {}", kv("job", (*jobs)[i].id),
                     kv("message", changed[i].error().message));
        if (retention_.concerns_all(changed[i].error())) return;
      }
      if (!rest(stop, began_us)) return;
    }
  };
  if (!rest(stop, parts_.clock.steady_us())) return;
  if (const std::optional<KeptJobs> kept = kept_jobs_setting(parts_.config)) {
    apply(
        [&](const EndedJob* after) {
          return retention_.list_expired(*kept, parts_.clock.wall_us(), after,
                                         Retention::kPieceJobs);
        },
        [&](const std::vector<EndedJob>& jobs) { return retention_.remove(jobs, stopped); });
  }
  if (const std::optional<int64_t> kept = parts_.config.keep_events_seconds) {
    apply(
        [&](const EndedJob* after) {
          return retention_.list_to_thin(*kept, parts_.clock.wall_us(), after,
                                         Retention::kPieceJobs);
        },
        [&](const std::vector<EndedJob>& jobs) { return retention_.thin(jobs, stopped); });
  }
}

void Housekeeping::remove_old_audit(const std::stop_token& stop) {
  if (!parts_.config.keep_audit_seconds) return;
  const int64_t before_us = parts_.jumps.ended_before(
      parts_.clock.wall_us(), *parts_.config.keep_audit_seconds * 1'000'000);
  int64_t sum = 0;
  for (int64_t removed = kAuditPerPiece; removed == kAuditPerPiece; sum += removed) {
    const int64_t began_us = parts_.clock.steady_us();
    const Result<int64_t> piece = parts_.store.audit().remove_older(before_us, kAuditPerPiece);
    if (!piece.ok()) {
      spdlog::warn("event=audit_entries_not_removed {}", kv("message", piece.error().message));
      break;
    }
    removed = *piece;
    if (!rest(stop, began_us)) break;
  }
  if (sum > 0) spdlog::info("event=audit_entries_removed count={}", sum);
}

}  // namespace trainyard::server
