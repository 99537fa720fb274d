// server/store/job_store.h: stores jobs, their attempts and their events.
//
// A job's state changes only as can_move() allows, in the writer's transaction, together with its
// StateChange event; a terminal state is written once. Event numbers have no gap, and event times
// never decrease within a job, whatever the wall clock does. Updates are fenced by the attempt
// number: an update from any attempt but the live one fails with ABORTED/ATTEMPT_FENCED.
// Thread-safe. The object lives as long as its Store. Common errors and the form of changes:
// server/store/store.h.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/store/done.h"
#include "server/store/job.h"
#include "server/store/owner_uses.h"
#include "src/base/result.h"

namespace trainyard::server {

class StoreCore;

/// The range of a job's stored events at the time of a read.
struct EventRange {
  int64_t oldest_seq = 0;  // from this seq on no event is missing
  int64_t newest_seq = 0;
  JobState state = JobState::kQueued;  // the job's state
};

inline constexpr int32_t kPageSizeMax = 1000;
// The largest number of metric keys in progress.metrics.
inline constexpr size_t kMetricKeysMax = 1024;

class JobStore {
 public:
  explicit JobStore(StoreCore& core) : core_(core) {}

  /// Stores a QUEUED job. Errors: ALREADY_EXISTS/JOB_EXISTS (also while a model with that ID
  /// exists); INVALID_ARGUMENT/REQUEST_ID_REUSED; RESOURCE_EXHAUSTED/QUEUED_JOBS_QUOTA_EXCEEDED;
  /// NOT_FOUND/DATASET_NOT_FOUND; FAILED_PRECONDITION/DATASET_NOT_READY; those of check_after().
  void submit(NewJob job, Done<Job> done);
  Result<Job> submit(NewJob job);

  /// Checks the jobs that a new job would wait for, as submit() does. Errors:
  /// NOT_FOUND/JOB_NOT_FOUND; FAILED_PRECONDITION/DEPENDENCY_FAILED for a job that has ended
  /// otherwise than required.
  Status check_after(const std::string& project, const std::vector<Dependency>& after) const;

  /// Returns the job that an earlier submit with this request ID created, or nothing for a new ID.
  /// A caller uses it before expensive preparations for submit(). Errors:
  /// INVALID_ARGUMENT/REQUEST_ID_REUSED; JOB_NOT_FOUND if that job was deleted.
  Result<std::optional<Job>> find_request(const RequestId& request) const;

  /// Durably requests the job's end. A QUEUED or PAUSED job becomes CANCELLED immediately. An
  /// active job gets cancel_requested, and the caller must stop its worker. A finished job is
  /// returned unchanged. Error: NOT_FOUND/JOB_NOT_FOUND.
  Result<Job> request_cancel(const std::string& project, const std::string& id);

  /// Durably requests that the job leaves its device. A QUEUED job becomes PAUSED immediately. An
  /// active job gets pause_requested, and the caller must stop its worker; instead of returning to
  /// the queue the job becomes PAUSED. Errors: FAILED_PRECONDITION/JOB_STATE_CONFLICT if it has
  /// ended or its cancellation was requested; NOT_FOUND/JOB_NOT_FOUND.
  Result<Job> request_pause(const std::string& project, const std::string& id);

  /// Moves a PAUSED job to QUEUED, or withdraws the pause request of an active job. Any other
  /// unfinished job is returned unchanged. Errors: FAILED_PRECONDITION/JOB_STATE_CONFLICT;
  /// NOT_FOUND/JOB_NOT_FOUND.
  Result<Job> resume(const std::string& project, const std::string& id);

  /// Sets the priority that the scheduler uses from now on. Errors:
  /// FAILED_PRECONDITION/JOB_STATE_CONFLICT if the job has ended; NOT_FOUND/JOB_NOT_FOUND.
  Result<Job> set_priority(const std::string& project, const std::string& id, int32_t priority);

  /// Records that a finished job has no checkpoints; the caller deletes their files. Errors:
  /// FAILED_PRECONDITION/JOB_STATE_CONFLICT; NOT_FOUND/JOB_NOT_FOUND.
  Result<Job> drop_checkpoints(const std::string& uid);

  /// Removes a finished job with its attempts and events, and returns the job so that the caller
  /// can delete its files. Errors: FAILED_PRECONDITION/JOB_STATE_CONFLICT; NOT_FOUND/JOB_NOT_FOUND.
  Result<Job> remove(const std::string& project, const std::string& id);

  /// Like remove(), but finds the job by its uid.
  void remove_ended(std::string uid, Done<Job> done);
  /// Removes events of a finished job. The caller should remove only some hundreds of rows per
  /// call, because the writer does nothing else meanwhile. Errors:
  /// FAILED_PRECONDITION/JOB_STATE_CONFLICT; NOT_FOUND/JOB_NOT_FOUND.
  void thin_events(ThinEvents thin, Done<void> done);

  /// Moves the job from QUEUED to STARTING with the next attempt number. Error:
  /// ABORTED/JOB_STATE_CONFLICT if the job is no longer QUEUED, for example because it was just
  /// cancelled. `reason` and `message` say why these devices were chosen; there must be at least
  /// one.
  Result<Job> start_attempt(const std::string& uid, const std::vector<std::string>& devices,
                            const std::string& nonce_digest, const std::string& reason,
                            const std::string& message);

  /// Records that the live attempts of these jobs, given by uid, share a device with another job.
  /// Their measured step times then do not correct forecasts.
  void note_shared(std::vector<std::string> uids, Done<void> done);

  /// Records the cluster's ID of the live attempt, and appends `text` to the job's events.
  void set_handle(std::string uid, int32_t attempt, std::string handle, std::string text,
                  Done<void> done);

  /// Records the process of the live attempt, so that a restarted daemon finds it.
  void set_process(std::string uid, int32_t attempt, int32_t pid, int64_t process_start,
                   Done<void> done);

  /// Records the digest of the credential that was issued to the live attempt's worker. It can be
  /// set only once: the same digest changes nothing, another digest fails with
  /// PERMISSION_DENIED/ENROLMENT_USED.
  void set_nonce(std::string uid, int32_t attempt, std::string nonce_digest, Done<void> done);

  /// Applies an update and returns the updated job. Errors: ABORTED/ATTEMPT_FENCED;
  /// FAILED_PRECONDITION/JOB_STATE_CONFLICT for a move that can_move refuses;
  /// OUT_OF_RANGE/REPORT_GAP (metadata acknowledged). Updates are applied in the order of the
  /// calls, so the sender of a stream of reports need not wait for each result.
  void update_attempt(AttemptUpdate update, Done<Job> done);

  /// Moves a job that has no live attempt, for example from QUEUED to FAILED. Error:
  /// FAILED_PRECONDITION/JOB_STATE_CONFLICT. Moves out of STARTING and RUNNING require
  /// update_attempt().
  void move(std::string uid, Move move, Done<Job> done);

  // error: JOB_NOT_FOUND
  Result<Job> find(const std::string& project, const std::string& id) const;
  Result<Job> find_uid(const std::string& uid) const;  // error: JOB_NOT_FOUND
  /// Returns a page of jobs, newest first. Errors: INVALID_ARGUMENT/PAGE_TOKEN_INVALID,
  /// PAGE_SIZE_NEGATIVE; NOT_FOUND/ARRAY_NOT_FOUND.
  Result<JobPage> list(const JobQuery& query) const;
  /// Returns all STARTING and RUNNING jobs, in the order of submission.
  Result<std::vector<Job>> list_active() const;
  /// Calls `take` with every unfinished job, in no particular order. The scheduler uses it at its
  /// start. After an error, `take` may have been called for some of the jobs.
  Status read_unfinished(const std::function<void(JobBrief)>& take) const;
  /// Starts to keep account of each owner's use of devices, with this half-life; 0 stops it. The
  /// first call counts the use from the attempts that are still stored.
  Status keep_uses(int64_t half_life_us);
  Result<Uses> uses() const;
  /// Counts the jobs of all projects, or of these.
  Result<JobCounts> count() const;
  Result<JobCounts> count(const std::vector<std::string>& projects) const;
  Result<std::vector<EndedJob>> list_ended(const EndedQuery& query) const;
  /// Returns when all changes queued before this call are committed. A job that ends afterwards
  /// gets a later end time.
  Status wait_for_changes();
  // error: ATTEMPT_NOT_FOUND
  Result<Attempt> find_attempt(const std::string& uid, int32_t number) const;

  /// Calls `visit` for each event with seq > after, in order, with its seq and its serialized
  /// bytes, whose metrics are packed (v1::Event.packed_metrics). It stops after `count_max` events,
  /// when the bytes reach `bytes_max`, or before a gap in the seqs; a gap before the first visited
  /// event does not count. If either limit is 0, it only returns the range. `visit` must be short,
  /// because it occupies a reader. Errors: OUT_OF_RANGE/SEQUENCE_IN_FUTURE if `after` is beyond the
  /// newest event; JOB_NOT_FOUND.
  using EventVisitor = std::function<void(int64_t seq, std::string_view bytes)>;
  Result<EventRange> visit_events(const std::string& uid, int64_t after, int32_t count_max,
                                  int64_t bytes_max, const EventVisitor& visit) const;

 private:
  StoreCore& core_;
};

}  // namespace trainyard::server
