// server/store/job_rows.h: reads and writes the rows of jobs. Only this code changes a job's state
// or appends an event. All functions run on a connection inside a transaction and throw
// SqliteError.
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
/// Calls `take` with each unfinished job, in no particular order.
void read_unfinished_jobs(Connection& db, const std::function<void(JobBrief)>& take);
/// Selects a page of jobs.
struct JobRange {
  std::span<const std::string> projects;  // each at most once
  std::optional<std::string> owner;
  int64_t array = 0;  // only members of the array with this `order`; 0: all jobs
  bool no_members = false;
  std::span<const JobState> states;  // each at most once
  int64_t before = 0;                // only jobs whose `order` is smaller
  int64_t count_max = 0;
  // only jobs that have all of these; reads the spec of every job in the range
  const Labels& labels;
};
/// Returns the selected jobs, newest first.
std::vector<Job> read_jobs(Connection& db, const JobRange& range);
/// Returns the job with this order, which must exist.
Job get_job_numbered(Connection& db, int64_t order);

/// Inserts a new QUEUED job and sets job.order. The caller appends the first event.
void insert_job(Connection& db, Job& job, const NewJob& asked);
/// Updates all columns that may change.
void save_job(Connection& db, const Job& job);

/// A change of one job within one command: collects the changes of `job`, saves its row and
/// notifies the observers once.
class JobEdit {
 public:
  JobEdit(WriteContext& context, Job& job)
      : context_(context),
        job_(job),
        state_before_(job.state),
        priority_before_(job.priority),
        checkpoint_step_before_(job.checkpoint_step),
        waits_for_before_(job.waits_for) {}
  /// Sets the event's seq, time and attempt, and stores the event.
  void append(v1::Event event);
  /// Changes the state and appends the event. FAILED_PRECONDITION/JOB_STATE_CONFLICT changes
  /// nothing. A move to QUEUED becomes a move to CANCELLED if cancellation was requested, to FAILED
  /// if the job has reached its time limit, and to PAUSED if a pause was requested.
  Status move(const Move& move);
  /// Appends a state event without a transition: the first event of a new job.
  void append_state(const Move& move);
  /// Appends a log line of the daemon to the job's events.
  void append_log(std::string text);
  /// Saves the row and notifies the observers. If the job has ended, the jobs that wait for it are
  /// settled from the end of this transaction on (server/store/dependencies.h).
  void save();
  /// Notifies the observers. `reschedules`: the scheduler must reconsider the job.
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
