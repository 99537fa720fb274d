// server/store/dependencies.h: jobs that wait for other jobs.
//
// A job waits only for jobs that exist when it is submitted, so there are no cycles. A row of
// `dependencies` whose job that is waited for has ended is still to be settled: it goes, and the
// job that waited is woken or ended too. The first kSettledMax are settled in the transaction that
// ends the job, the others in transactions of the writer's own behind it, the newest end first, so
// that a chain or a job on which thousands wait holds nobody up; an opened store goes on with them.
// Until then they wait: a job above `waits_for` 0 is not in the scheduler's queue. All of it runs
// on a connection inside a transaction and throws SqliteError.
#pragma once

#include <string>
#include <vector>

#include "server/store/job.h"
#include "server/store/sqlite.h"
#include "server/store/writer.h"

namespace trainyard::server {

inline constexpr const char* kWaitingForJob = "WAITING_FOR_JOB";

/// An unfinished job that a new one waits for.
struct Awaited {
  int64_t order = 0;
  std::string id;
  bool any_end = false;
};

/// Of the jobs in `asked.after`, those that have not ended yet. Refuses the others but for those
/// that have ended as asked: NOT_FOUND/JOB_NOT_FOUND; FAILED_PRECONDITION/DEPENDENCY_FAILED.
Result<std::vector<Awaited>> find_awaited(Connection& db, const NewJob& asked);

/// The job with this order has its row already.
void insert_dependencies(Connection& db, int64_t order, const std::vector<Awaited>& awaited);

/// What a job waits for, in a sentence: `first` and count - 1 others.
std::string waiting_message(const Awaited& first, int32_t count);
/// The same of a stored job, whose `waits_for` is above 0.
std::string waiting_message(Connection& db, const Job& job);

/// Rows of `dependencies` that one transaction settles at most.
inline constexpr int64_t kSettledMax = 256;

/// Whether jobs wait for this one, or are yet to be told that it has ended: the row of it has to
/// stay for them.
bool has_dependents(Connection& db, const Job& job);

/// Of a job that has just ended and is saved: it waits for nothing any more, and what waits for it
/// is to be settled.
void note_end(WriteContext& context, const Job& ended);

/// Wakes jobs that waited for nothing else than the unsettled ones, and ends those that needed
/// another end of them: at most kSettledMax. False if there were none.
bool settle_dependents(WriteContext& context);

/// Jobs by `order` that have ended and that others still wait for, in a store that was just opened.
std::vector<int64_t> find_unsettled(Connection& db);

}  // namespace trainyard::server
