// server/housekeeping/garbage.h: SystemService.CollectGarbage: what of the state folder nothing
// needs.
//
// Finished jobs and their events by rule: server/housekeeping/retention.h. And three kinds of
// leftovers. Checkpoints of jobs that have ended: an ended job never runs again, and who forks it
// at this moment has links of its own or finds none. Uploads that no dataset and no model refers
// to: server/files/uploads.h. Files that neither the store nor its copy of before an upgrade names:
// the files are listed before the store is read, and what was changed within kFilesGraceUs stays,
// because forks and workers put files in place before their row is there.
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
        retention_(parts.store, parts.files, parts.paths, parts.clock) {}
  /// INVALID_ARGUMENT/FIELD_OUT_OF_RANGE, FIELD_REQUIRED; ABORTED/GC_BUSY.
  Result<v1::CollectGarbageResponse> collect(const v1::CollectGarbageRequest& request);

 private:
  using Item = v1::CollectGarbageResponse::Item;
  struct Candidate {
    Item item;
    std::filesystem::path path;
    EndedJob job = {};  // of a job, its events or its checkpoints
  };
  struct Found {
    std::vector<Candidate> candidates;  // up to those beyond kItemsMax that tell of more
    std::vector<std::string> warnings;  // what could not be looked at
  };
  /// What may go, of what there was at `as_of_us`.
  Result<Found> find(const v1::CollectGarbageRequest& request, int64_t as_of_us);
  /// Those that the rules do not keep. Jobs without events to thin are marked, unless this is a dry
  /// run: the next one need not read them.
  Status find_jobs(const v1::CollectGarbageRequest& request, int64_t as_of_us, Found& found);
  Status find_events(const v1::CollectGarbageRequest& request, int64_t kept_seconds,
                     int64_t as_of_us, Found& found);
  /// Until the daemon drains.
  std::function<bool()> stopped() const;
  static Candidate candidate(Item::Kind kind, const EndedJob& job, std::string reason);
  Status remove(const Candidate& candidate);
  /// What happened to each.
  std::vector<Status> remove_all(const std::vector<Candidate>& found);

  const HousekeepingParts parts_;
  Uploads& uploads_;
  Retention retention_;
  std::atomic<bool> collecting_ = false;
};

}  // namespace trainyard::server
