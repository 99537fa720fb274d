// server/housekeeping/retention.h: decides which finished jobs, and whose events, are kept, by the
// settings keep_jobs and keep_events or by a request, and deletes the others.
//
// A job is deleted with its events and its folder, exactly as by DeleteJob. Its model stays, and so
// do checkpoint files that a fork also has, because the fork has hard links of its own. The row is
// deleted first, with a note of the folder (server/store/removals.h). Events are thinned to those
// that tell a job's history: state changes, checkpoints, and the newest value of each metric, in
// the place of the newest event with metrics. The job is marked as thinned from its first deleted
// event on.
//
// All work is done in pieces that occupy the store's writer for some milliseconds. Each piece
// leaves a consistent state, so a daemon that was killed in between continues where it was.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "server/config/config.h"
#include "server/config/paths.h"
#include "server/housekeeping/clock_jumps.h"
#include "server/store/store.h"
#include "src/base/clock.h"
#include "src/base/files.h"
#include "src/base/result.h"

namespace trainyard::server {

/// Returns text for people, such as "5 hours ago".
std::string age_text(int64_t us);

/// Returns the rule in the settings, extended so that every job is kept for kKeptSecondsMin after
/// its end.
std::optional<KeptJobs> kept_jobs_setting(const Config& config);

/// Thread-safe; several threads may remove and thin the same jobs at the same time.
class Retention {
 public:
  static constexpr int64_t kPieceJobs = 32;  // jobs that one piece removes or thins
  /// Reason of the error (ABORTED) for a job that was skipped because `stopped` returned true.
  static constexpr const char* kStopped = "RETENTION_STOPPED";

  Retention(Store& store, Files& files, const StatePaths& paths, const Clock& clock,
            const ClockJumps& jumps)
      : store_(store), files_(files), paths_(paths), clock_(clock), jumps_(jumps) {}

  /// These list the next finished jobs that `kept` does not keep, or whose events are to be
  /// thinned, in the order of their ends. They begin after `after`, the last job of the page before
  /// (null: at the first job). Jobs that ended after `as_of_us` are treated as if they had not
  /// ended. A jump of the clock makes no job older.
  Result<std::vector<EndedJob>> list_expired(const KeptJobs& kept, int64_t as_of_us,
                                             const EndedJob* after, int64_t count_max) const;
  Result<std::vector<EndedJob>> list_to_thin(int64_t kept_seconds, int64_t as_of_us,
                                             const EndedJob* after, int64_t count_max) const;

  /// These return clauses for people that say what happens to the job and why.
  std::string reason_to_delete(const EndedJob& job) const;
  std::string reason_to_thin(const EndedJob& job) const;

  /// Returns whether the job has events that thin() would delete. Reads its events, unless there
  /// are so many that some certainly would be.
  Result<bool> has_to_thin(const EndedJob& job) const;

  /// Returns true if other jobs would get the same error, because the store is busy, full or has
  /// failed. False if the error concerns one job, whose events may be damaged.
  bool concerns_all(const Error& error) const;

  /// Deletes at most kPieceJobs jobs and returns the result for each: also OK if another thread
  /// deleted it in the meantime. Once `stopped` returns true, the rest is skipped: kStopped.
  std::vector<Status> remove(std::span<const EndedJob> jobs, const std::function<bool()>& stopped);
  /// Thins the events of at most kPieceJobs jobs; a job with many events takes several pieces.
  std::vector<Status> thin(std::span<const EndedJob> jobs, const std::function<bool()>& stopped);

 private:
  Store& store_;
  Files& files_;
  const StatePaths& paths_;
  const Clock& clock_;
  const ClockJumps& jumps_;
};

}  // namespace trainyard::server
