#include "server/store/dependencies.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "server/store/job_rows.h"
#include "src/base/check.h"

namespace trainyard::server {
namespace {

struct Dependent {
  int64_t order = 0;
  bool any_end = false;
};

/// Returns the first `count_max` jobs that wait for this job, and deletes their rows in
/// `dependencies`.
std::vector<Dependent> take_dependents(Connection& db, int64_t order, int64_t count_max) {
  std::vector<Dependent> dependents;
  {
    Query query(db,
                "SELECT job, any_end FROM dependencies INDEXED BY dependencies_by_after"
                " WHERE after = ? ORDER BY job LIMIT ?");
    query.bind(order).bind(count_max);
    while (query.step()) dependents.push_back({query.integer(0), query.integer(1) != 0});
  }
  if (!dependents.empty()) {
    Query(db,
          "DELETE FROM dependencies INDEXED BY dependencies_by_after"
          " WHERE after = ? AND job <= ?")
        .bind(order)
        .bind(dependents.back().order)
        .run();
  }
  return dependents;
}

/// Notes that `job` waits for one job fewer: `ended` ended as required.
void wake(WriteContext& context, Job& job, const Job& ended) {
  JobEdit edit(context, job);
  TRAINYARD_CHECK(job.waits_for > 0,
                  job.name() + " waits for no job, but one of its dependencies ended");
  --job.waits_for;
  edit.append_log(ended.name() + " is " + std::string(name_of(ended.state)));
  if (job.state == JobState::kQueued) {
    job.reason = job.waits_for > 0 ? kWaitingForJob : "WAITING_FOR_SCHEDULER";
    job.message = job.waits_for > 0
                      ? waiting_message(context.db, job)
                      : "The jobs that it waited for have ended; it waits for the scheduler.";
  }
  edit.save();
}

/// Cancels `job`, because `ended` did not end as required.
void end(WriteContext& context, Job& job, const Job& ended) {
  JobEdit edit(context, job);
  job.waits_for = 0;
  Move move;
  move.to = JobState::kCancelled;
  move.reason = kDependencyFailed;
  move.message = "It depends on the success of " + ended.name() + ", which is " +
                 std::string(name_of(ended.state)) + " (" + ended.reason + ").";
  // A job that waits is QUEUED or PAUSED, and both states may become CANCELLED.
  const Status moved = edit.move(move);
  TRAINYARD_CHECK(moved.ok(), "a job that waits for another one cannot be cancelled");
  edit.save();
}

}  // namespace

Result<std::vector<Awaited>> find_awaited(Connection& db, const NewJob& asked) {
  std::vector<Awaited> awaited;
  for (size_t i = 0; i < asked.after.size(); ++i) {
    const Dependency& dependency = asked.after[i];
    const auto refuse = [&](ErrorCode code, const char* reason, const std::string& why) {
      Error e = field_error(reason, "spec.after[" + std::to_string(i) + "].job", why);
      e.code = code;
      e.metadata["job"] = dependency.id;
      return e;
    };
    const std::optional<Job> job = find_job(db, asked.project, dependency.id);
    if (!job) {
      return refuse(
          ErrorCode::kNotFound, "JOB_NOT_FOUND",
          "there is no job " + dependency.id +
              "; a job can wait only for jobs that were submitted before it and not deleted");
    }
    if (!is_terminal(job->state)) {
      awaited.push_back({job->order, job->id, dependency.any_end});
    } else if (job->state != JobState::kSucceeded && !dependency.any_end) {
      return refuse(ErrorCode::kFailedPrecondition, kDependencyFailed,
                    job->id + " is " + std::string(name_of(job->state)) + " (" + job->reason +
                        "), so this job would never start; retry " + job->id +
                        " and name the new job, or use on: any to start after any end");
    }
  }
  return awaited;
}

void insert_dependencies(Connection& db, int64_t order, const std::vector<Awaited>& awaited) {
  for (const Awaited& a : awaited) {
    Query query(db, "INSERT INTO dependencies (job, after, any_end) VALUES (?, ?, ?)");
    query.bind(order).bind(a.order).bind(int64_t{a.any_end}).run();
  }
}

std::string waiting_message(const Awaited& first, int32_t count) {
  std::string message =
      "Waits for the job " + first.id + (first.any_end ? " to end" : " to succeed");
  if (count > 1) message += ", and for " + std::to_string(count - 1) + " more";
  return message + ".";
}

std::string waiting_message(Connection& db, const Job& job) {
  Query query(db,
              "SELECT j.number, j.id, d.any_end FROM dependencies d"
              " JOIN jobs j ON j.number = d.after WHERE d.job = ? ORDER BY d.after LIMIT 1");
  query.bind(job.order);
  TRAINYARD_CHECK(query.step(), "a job that waits for another one has no dependency");
  return waiting_message({query.integer(0), query.text(1), query.integer(2) != 0}, job.waits_for);
}

bool has_dependents(Connection& db, const Job& job) {
  Query query(
      db, "SELECT 1 FROM dependencies INDEXED BY dependencies_by_after WHERE after = ? LIMIT 1");
  query.bind(job.order);
  return query.step();
}

void note_end(WriteContext& context, const Job& ended) {
  Query(context.db, "DELETE FROM dependencies WHERE job = ?").bind(ended.order).run();
  if (has_dependents(context.db, ended)) context.unsettled.push_back(ended.order);
}

bool settle_dependents(WriteContext& context) {
  std::vector<int64_t>& unsettled = context.unsettled;
  bool any = false;
  for (int64_t left = kSettledMax; left > 0 && !unsettled.empty();) {
    const int64_t order = unsettled.back();
    const std::vector<Dependent> dependents = take_dependents(context.db, order, left);
    // After a full batch more dependents may be left. Then the job stays in the list, below the
    // jobs that end in this loop.
    if (std::ssize(dependents) < left) unsettled.pop_back();
    left -= std::max(std::ssize(dependents), std::ptrdiff_t{1});
    if (dependents.empty()) continue;
    any = true;
    const Job ended = get_job_numbered(context.db, order);
    for (const Dependent& dependent : dependents) {
      Job waiting = get_job_numbered(context.db, dependent.order);
      if (is_terminal(waiting.state)) continue;
      if (dependent.any_end || ended.state == JobState::kSucceeded) {
        wake(context, waiting, ended);
      } else {
        end(context, waiting, ended);
      }
    }
  }
  return any;
}

std::vector<int64_t> find_unsettled(Connection& db) {
  std::vector<int64_t> unsettled;
  Query query(db,
              "SELECT DISTINCT after FROM dependencies INDEXED BY dependencies_by_after"
              " WHERE after NOT IN"
              " (SELECT number FROM jobs INDEXED BY jobs_by_state WHERE state < 5)");
  while (query.step()) unsettled.push_back(query.integer(0));
  return unsettled;
}

}  // namespace trainyard::server
