// Changes of jobs that users request: cancel, pause, resume, set the priority. For an active job,
// cancel and pause only set a mark. When its attempt ends later, JobEdit::move() chooses the state
// that the mark requires.
#include <utility>

#include "server/store/dependencies.h"
#include "server/store/job_rows.h"
#include "server/store/job_steering.h"
#include "server/store/job_store.h"
#include "server/store/removals.h"
#include "server/store/store_core.h"

namespace trainyard::server {
Status cancel_job(WriteContext& context, Job& job) {
  if (is_terminal(job.state) || job.cancel_requested) return {};
  JobEdit edit(context, job);
  job.cancel_requested = true;
  if (!is_active(job.state)) {
    Move move;
    move.to = JobState::kCancelled;
    move.reason = "CANCELLED";
    move.message = job.attempt == 0 ? "Cancelled on request before it started."
                                    : "Cancelled on request while it waited.";
    if (Status s = edit.move(move); !s.ok()) return s.error();
  }
  edit.save();
  return {};
}

Status pause_job(WriteContext& context, Job& job) {
  if (is_terminal(job.state)) return state_conflict(job, "a job that has ended cannot be paused.");
  if (job.cancel_requested) return state_conflict(job, "it is being cancelled.");
  if (job.state == JobState::kPaused || job.pause_requested) return {};
  JobEdit edit(context, job);
  if (is_active(job.state)) {
    job.pause_requested = true;
    edit.append_log("pause requested");
  } else {
    Move move;
    move.to = JobState::kPaused;
    move.reason = "PAUSED";
    move.message = "Paused on request while it waited.";
    if (Status s = edit.move(move); !s.ok()) return s.error();
  }
  edit.save();
  return {};
}

Status resume_job(WriteContext& context, Job& job) {
  if (is_terminal(job.state)) {
    return state_conflict(job, "a job that has ended can only be retried or forked, as a new job.");
  }
  if (job.state != JobState::kPaused && !job.pause_requested) return {};
  JobEdit edit(context, job);
  job.workers_lost = 0;  // a resume by a user restarts the count
  if (job.pause_requested) {
    job.pause_requested = false;
    edit.append_log("the pause request was withdrawn");
  } else {
    Move move;
    move.to = JobState::kQueued;
    move.reason = "WAITING_FOR_SCHEDULER";
    move.message = "Resumed on request; it waits for the scheduler.";
    if (job.waits_for > 0) {
      move.reason = kWaitingForJob;
      move.message = "Resumed on request. " + waiting_message(context.db, job);
    }
    if (Status s = edit.move(move); !s.ok()) return s.error();
  }
  edit.save();
  return {};
}

Status remove_job(WriteContext& context, const Job& job) {
  if (!is_terminal(job.state)) {
    Error e = make_error(ErrorCode::kFailedPrecondition, "JOB_STATE_CONFLICT",
                         job.name() + " is " + std::string(name_of(job.state)) +
                             "; cancel it and wait until it has ended before deleting it.");
    e.metadata["state"] = name_of(job.state);
    return e;
  }
  if (has_dependents(context.db, job)) {
    return state_conflict(
        job, "the jobs that waited for it are still being updated; try again in a few seconds.");
  }
  Query(context.db, "DELETE FROM jobs WHERE number = ?").bind(job.order).run();
  note_removal(context.db, "jobs/" + job.uid);
  JobChange& change = context.changes.emplace_back();
  change.uid = job.uid;
  change.newest_seq = job.newest_seq;
  change.state = job.state;
  change.removed = true;
  return {};
}

namespace {

/// Applies `change` to the job of this name.
Result<Job> change_job(StoreCore& core, const std::string& project, const std::string& id,
                       Status (*change)(WriteContext&, Job&)) {
  return core.change_and_wait<Job>(
      [=](WriteContext& context) -> Result<Job> {
        ASSIGN_OR_RETURN(Job job, get_job(context.db, project, id));
        if (Status s = change(context, job); !s.ok()) return s.error();
        return job;
      },
      Urgency::kEssential);
}

Result<Job> set_job_priority(WriteContext& context, const std::string& project,
                             const std::string& id, int32_t priority) {
  ASSIGN_OR_RETURN(Job job, get_job(context.db, project, id));
  if (is_terminal(job.state)) {
    return state_conflict(job, "the priority of a job that has ended cannot change.");
  }
  if (job.priority == priority) return job;
  JobEdit edit(context, job);
  edit.append_log("priority " + std::to_string(job.priority) + " becomes " +
                  std::to_string(priority) + ", on request");
  job.priority = priority;
  edit.save();
  return job;
}

Result<Job> drop_job_checkpoints(WriteContext& context, const std::string& uid) {
  std::optional<Job> job = find_job_uid(context.db, uid);
  if (!job) return make_error(ErrorCode::kNotFound, "JOB_NOT_FOUND", "the job was deleted.");
  if (!is_terminal(job->state)) return state_conflict(*job, "it needs its checkpoints.");
  job->checkpoint_step = 0;
  Query(context.db, "UPDATE jobs SET checkpoint_step = 0 WHERE uid = ?").bind(uid).run();
  return *std::move(job);
}

}  // namespace

Result<Job> JobStore::request_cancel(const std::string& project, const std::string& id) {
  return change_job(core_, project, id, cancel_job);
}

Result<Job> JobStore::request_pause(const std::string& project, const std::string& id) {
  return change_job(core_, project, id, pause_job);
}

Result<Job> JobStore::resume(const std::string& project, const std::string& id) {
  return change_job(core_, project, id, resume_job);
}

Result<Job> JobStore::set_priority(const std::string& project, const std::string& id,
                                   int32_t priority) {
  return core_.change_and_wait<Job>(
      [=](WriteContext& context) { return set_job_priority(context, project, id, priority); },
      Urgency::kEssential);
}

Result<Job> JobStore::drop_checkpoints(const std::string& uid) {
  return core_.change_and_wait<Job>(
      [uid](WriteContext& context) { return drop_job_checkpoints(context, uid); },
      Urgency::kEssential);
}

}  // namespace trainyard::server
