// server/housekeeping/retention.h: which finished jobs are kept, and whose events: the settings
// keep_jobs and keep_events, or what a request says instead.
//
// A job that goes leaves with its events and its folder, exactly as DeleteJob removes it: its model
// stays, and so do checkpoint files that a fork has too, because the fork has links of its own. The
// row goes first, with a note of its folder (server/store/removals.h). Events are thinned to what
// tells a job's story: state changes, checkpoints, and of each metric the newest value, in the
// place of the newest event with metrics. The job says so from the first event on that goes.
//
// Everything is done in pieces of some milliseconds of the store's writer, each of which leaves a
// state that is complete in itself: a daemon that is killed in between goes on where it was.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "server/config/config.h"
#include "server/config/paths.h"
#include "server/store/store.h"
#include "src/base/clock.h"
#include "src/base/files.h"
#include "src/base/result.h"

namespace trainyard::server {

/// "5 hours ago", for people.
std::string age_text(int64_t us);

/// The setting, which leaves every job alone for kKeptSecondsMin after its end.
std::optional<KeptJobs> kept_jobs_setting(const Config& config);

/// Thread-safe; several at a time may remove and thin the same jobs.
class Retention {
 public:
  static constexpr int64_t kPieceJobs = 32;  // that a piece removes, or whose events it thins
  /// Of a job that is left for another time, because `stopped` said so. ABORTED.
  static constexpr const char* kStopped = "RETENTION_STOPPED";

  Retention(Store& store, Files& files, const StatePaths& paths, const Clock& clock)
      : store_(store), files_(files), paths_(paths), clock_(clock) {}

  /// The next finished jobs that `kept` does not keep, or whose events it would thin, by their
  /// ends, the oldest first, behind `after` (the last one of a page before; null: from the first).
  /// Jobs that ended after `as_of_us` are as if they had not ended.
  Result<std::vector<EndedJob>> list_going(const KeptJobs& kept, int64_t as_of_us,
                                           const EndedJob* after, int64_t count_max) const;
  Result<std::vector<EndedJob>> list_to_thin(int64_t kept_seconds, int64_t as_of_us,
                                             const EndedJob* after, int64_t count_max) const;

  /// Clauses for people: what happens to the job, and why.
  std::string reason_to_go(const EndedJob& job) const;
  std::string reason_to_thin(const EndedJob& job) const;

  /// Whether it has events that thin() would remove. Reads its events, unless they are so many that
  /// it must have.
  Result<bool> has_to_thin(const EndedJob& job) const;

  /// True if other jobs would meet the same error: the store is busy, full or has failed. False if
  /// it is a matter of one job, whose events may be damaged.
  bool concerns_all(const Error& error) const;

  /// Removes jobs, at most kPieceJobs. What happened to each: OK too if it was removed meanwhile.
  /// Once `stopped`, the rest is left as it is: kStopped.
  std::vector<Status> remove(std::span<const EndedJob> jobs, const std::function<bool()>& stopped);
  /// Thins the events of jobs, at most kPieceJobs; of a job that has many, in several pieces.
  std::vector<Status> thin(std::span<const EndedJob> jobs, const std::function<bool()>& stopped);

 private:
  Store& store_;
  Files& files_;
  const StatePaths& paths_;
  const Clock& clock_;
};

}  // namespace trainyard::server
