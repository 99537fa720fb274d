// server/store/dependencies.h: jobs that wait for other jobs.
//
// A job waits only for jobs that exist when it is submitted, so there are no cycles. A row of
// `dependencies` lives as long as the job that is waited for is unfinished: its end takes the row
// away, in the same transaction, and either wakes the job that waited or ends it too. A job above
// `waits_for` 0 is not in the scheduler's queue. All of it runs on a connection inside a
// transaction and throws SqliteError.
#pragma once

#include <string>
#include <vector>

#include "server/store/job.h"
#include "server/store/sqlite.h"
#include "server/store/writer.h"

namespace trainyard::server {

inline constexpr const char* kWaitingForJob = "WAITING_FOR_JOB";
inline constexpr const char* kDependencyFailed = "DEPENDENCY_FAILED";

/// An unfinished job that a new one waits for.
struct Awaited {
  int64_t order = 0;
  std::string id;
  bool any_end = false;
};

/// Of the jobs in `asked.after`, those that have not ended yet. Refuses the others but for those
/// that have ended as asked: NOT_FOUND/JOB_NOT_FOUND; FAILED_PRECONDITION/DEPENDENCY_FAILED.
Result<std::vector<Awaited>> find_awaited(Connection& db, const NewJob& asked);

/// `job` has its row already.
void insert_dependencies(Connection& db, const Job& job, const std::vector<Awaited>& awaited);

/// What a job waits for, in a sentence: `first` and count - 1 others.
std::string waiting_message(const Awaited& first, int32_t count);
/// The same of a stored job, whose `waits_for` is above 0.
std::string waiting_message(Connection& db, const Job& job);

/// Of a job that has just ended and is saved: wakes the jobs that waited for nothing else, and
/// ends those that needed its success, with what waits for them in turn.
void settle_dependents(WriteContext& context, const Job& ended);

}  // namespace trainyard::server
