// server/housekeeping/garbage.h: SystemService.CollectGarbage, which deletes data of the state
// folder that is no longer needed.
//
// It deletes finished jobs and their events by the rules of server/housekeeping/retention.h, and
// three kinds of leftovers:
// - Checkpoints of jobs that have ended. An ended job never runs again. A fork that is being
//   created at the same time has hard links of its own, or finds no checkpoint.
// - Uploads that no dataset and no model refers to (server/files/uploads.h).
// - Files that neither the store nor its copy from before an upgrade names. The files are listed
//   before the store is read. Files changed within kFilesGraceUs stay, because forks and workers
//   create files before their rows.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "server/files/uploads.h"
#include "server/housekeeping/housekeeping.h"
#include "server/housekeeping/retention.h"
#include "src/base/result.h"
#include "trainyard/v1/system_service.pb.h"

namespace trainyard::server {

/// Thread-safe.
class Garbage {
 public:
  static constexpr int64_t kOlderThanSecondsDefault = int64_t{7} * 24 * 3600;
  static constexpr int64_t kOlderThanSecondsMax = int64_t{3650} * 24 * 3600;
  static constexpr int64_t kFilesGraceUs = int64_t{3600} * 1'000'000;
  static constexpr size_t kItemsMax = 10'000;

  Garbage(const HousekeepingParts& parts, Uploads& uploads)
      : parts_(parts),
        uploads_(uploads),
        retention_(parts.store, parts.files, parts.paths, parts.clock, parts.jumps) {}
  /// Error: INVALID_ARGUMENT/FIELD_OUT_OF_RANGE, FIELD_REQUIRED; ABORTED/GC_BUSY.
  Result<v1::CollectGarbageResponse> collect(const v1::CollectGarbageRequest& request);

 private:
  using Item = v1::CollectGarbageResponse::Item;
  struct Candidate {
    Item item;
    std::filesystem::path path;
    EndedJob job = {};  // the job, for candidates that are a job, its events or its checkpoints
  };
  struct Found {
    std::vector<Candidate> candidates;  // one beyond kItemsMax shows that there are more
    std::vector<std::string> warnings;  // items that could not be checked
  };
  /// Finds the items that may be deleted, among those that existed at `as_of_us`.
  Result<Found> find(const v1::CollectGarbageRequest& request, int64_t as_of_us);
  /// Finds the jobs and events that the rules do not keep. Marks jobs without events to thin unless
  /// this is a dry run, so that the next call need not read them.
  Status find_jobs(const v1::CollectGarbageRequest& request, int64_t as_of_us, Found& found);
  Status find_events(const v1::CollectGarbageRequest& request, int64_t kept_seconds,
                     int64_t as_of_us, Found& found);
  /// Returns a function that is true once the daemon drains.
  std::function<bool()> stopped() const;
  static Candidate candidate(Item::Kind kind, const EndedJob& job, std::string reason);
  Status remove(const Candidate& candidate);
  /// Deletes the candidates and returns the result for each.
  std::vector<Status> remove_all(const std::vector<Candidate>& found);

  const HousekeepingParts parts_;
  Uploads& uploads_;
  Retention retention_;
  std::atomic<bool> collecting_ = false;
};

}  // namespace trainyard::server
