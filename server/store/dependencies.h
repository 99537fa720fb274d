// server/store/dependencies.h: jobs that wait for other jobs.
//
// A job waits only for jobs that exist when it is submitted, so there are no cycles. When a job
// ends, each row of `dependencies` that refers to it must be settled: the row is deleted, and the
// job that waited is woken or cancelled. The transaction that ends the job settles the first
// kSettledMax rows. The writer settles the others in transactions of its own, those of the newest
// end first, so that neither a long chain nor a job with thousands of dependents delays other
// changes. After a restart, the opened store continues with the unsettled rows. Until its rows are
// settled, a job has `waits_for` above 0 and is not in the scheduler's queue. All functions run on
// a connection inside a transaction and throw SqliteError.
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

/// Returns the jobs in `asked.after` that have not ended yet. Errors: NOT_FOUND/JOB_NOT_FOUND for a
/// job that does not exist; FAILED_PRECONDITION/DEPENDENCY_FAILED for a job that has ended
/// otherwise than required.
Result<std::vector<Awaited>> find_awaited(Connection& db, const NewJob& asked);

/// Inserts the dependencies of the job with this `order`, whose row already exists.
void insert_dependencies(Connection& db, int64_t order, const std::vector<Awaited>& awaited);

/// Returns a sentence that says which jobs a job waits for: `first` and count - 1 others.
std::string waiting_message(const Awaited& first, int32_t count);
/// Returns a sentence that says which jobs a stored job waits for. Its `waits_for` must be above 0.
std::string waiting_message(Connection& db, const Job& job);

/// The largest number of rows of `dependencies` that one transaction settles.
inline constexpr int64_t kSettledMax = 256;

/// Returns whether rows of `dependencies` refer to this job, ended or not. Its own row must not be
/// deleted before they are settled.
bool has_dependents(Connection& db, const Job& job);

/// Must be called for a job that has just ended and is saved: deletes the rows of the jobs that it
/// waited for, and puts it on the writer's list of unsettled jobs if others wait for it.
void note_end(WriteContext& context, const Job& ended);

/// Settles at most kSettledMax dependencies on the writer's unsettled jobs: wakes the jobs whose
/// condition is met and cancels the others. Returns false if there was nothing to settle.
bool settle_dependents(WriteContext& context);

/// Returns the `order` of each ended job that others still wait for; used when a store is opened.
std::vector<int64_t> find_unsettled(Connection& db);

}  // namespace trainyard::server
