// server/store/job_rows.h: jobs as rows, and the only code that moves a job or appends an event.
// All of it runs on a connection inside a transaction and throws SqliteError.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/store/job.h"
#include "server/store/job_store.h"
#include "server/store/sqlite.h"
#include "server/store/writer.h"

namespace trainyard::server {

std::optional<Job> find_job(Connection& db, std::string_view project, std::string_view id);
std::optional<Job> find_job_uid(Connection& db, std::string_view uid);
Result<Job> get_job(Connection& db, std::string_view project, std::string_view id);
Result<Job> get_job_uid(Connection& db, std::string_view uid);
std::vector<Job> read_active_jobs(Connection& db);
/// Calls `take` with each unfinished job, in no order.
void read_unfinished_jobs(Connection& db, const std::function<void(JobBrief)>& take);
/// A page of jobs.
struct JobRange {
  std::string_view project;
  std::optional<std::string> owner;
  int64_t array = 0;  // only members of the one of this order
  bool no_members = false;
  std::span<const JobState> states;  // each at most once
  int64_t before = 0;                // `order` below it
  int64_t count_max = 0;
  const Labels& labels;  // only jobs that have all of these: every spec in the range is looked at
};
/// Newest first.
std::vector<Job> read_jobs(Connection& db, const JobRange& range);
/// The job with this order, which exists.
Job get_job_numbered(Connection& db, int64_t order);

/// A new QUEUED job, whose first event the caller appends. Fills job.order.
void insert_job(Connection& db, Job& job, const NewJob& asked);
/// Writes everything that may change.
void save_job(Connection& db, const Job& job);

/// A change of one job within one command: the new job, saved and announced once.
class JobEdit {
 public:
  JobEdit(WriteContext& context, Job& job)
      : context_(context),
        job_(job),
        state_before_(job.state),
        priority_before_(job.priority),
        checkpoint_step_before_(job.checkpoint_step),
        waits_for_before_(job.waits_for) {}
  /// Fills the event's seq, time and attempt, and stores it.
  void append(v1::Event event);
  /// Changes the state and appends the event. FAILED_PRECONDITION/JOB_STATE_CONFLICT changes
  /// nothing. A job whose cancellation was requested never goes back to the queue: it becomes
  /// CANCELLED instead, one that has reached its time limit FAILED, and one whose pause was
  /// requested PAUSED.
  Status move(const Move& move);
  /// The event of a new job: QUEUED, without a transition.
  void tell_state(const Move& move);
  /// A line of the daemon's in the job's log.
  void tell(std::string text);
  /// Saves the row and notifies the observers. If the job has ended, what waits for it is settled
  /// from the end of this transaction on (server/store/dependencies.h).
  void save();
  /// Notifies the observers. `reschedules`: the scheduler must look at the job.
  void notify(bool reschedules);

 private:
  int64_t next_event_time_us() const;
  void count_run_time(bool unseen);

  WriteContext& context_;
  Job& job_;
  const JobState state_before_;
  const int32_t priority_before_;
  const int64_t checkpoint_step_before_;
  const int32_t waits_for_before_;
};

std::optional<Attempt> find_attempt_row(Connection& db, const Job& job, int32_t number);
void save_handle(Connection& db, const Job& job, int32_t number, const std::string& handle);
void insert_attempt(Connection& db, const Job& job, const Attempt& attempt);
void save_attempt(Connection& db, const Job& job, const Attempt& attempt);
void save_nonce(Connection& db, const Job& job, int32_t number, const std::string& nonce_digest);

}  // namespace trainyard::server
