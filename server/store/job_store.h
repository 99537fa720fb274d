// server/store/job_store.h: jobs, their attempts and their events.
//
// A job's state changes only as can_move() allows, in the writer's transaction, together with its
// StateChange event; a terminal state is written once. Event numbers have no gap, and event times
// never decrease within a job, whatever the wall clock does. The attempt number is the fence: an
// update from any attempt but the live one is ABORTED/ATTEMPT_FENCED. Thread-safe. Lives as long as
// its Store. Common errors and the form of changes: server/store/store.h.
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

/// What a job has of events, at the time of a read.
struct EventRange {
  int64_t oldest_seq = 0;  // from here on none is missing
  int64_t newest_seq = 0;
  JobState state = JobState::kQueued;  // of the job
};

inline constexpr int32_t kPageSizeMax = 1000;
inline constexpr size_t kMetricKeysMax = 1024;  // newest values kept with a job

class JobStore {
 public:
  explicit JobStore(StoreCore& core) : core_(core) {}

  /// Stores a QUEUED job. ALREADY_EXISTS/JOB_EXISTS (also while a model with that ID exists);
  /// INVALID_ARGUMENT/REQUEST_ID_REUSED; RESOURCE_EXHAUSTED/QUOTA_QUEUED_JOBS;
  /// NOT_FOUND/DATASET_NOT_FOUND; FAILED_PRECONDITION/DATASET_NOT_READY; check_after()'s.
  void submit(NewJob job, Done<Job> done);
  Result<Job> submit(NewJob job);

  /// What submit() would say about the jobs that a new one waits for. NOT_FOUND/JOB_NOT_FOUND;
  /// FAILED_PRECONDITION/DEPENDENCY_FAILED for one that has ended otherwise than it should.
  Status check_after(const std::string& project, const std::vector<Dependency>& after) const;

  /// The job that an earlier submit with this request made: what submit() would answer, for a
  /// caller that has work to do before. INVALID_ARGUMENT/REQUEST_ID_REUSED; JOB_NOT_FOUND if that
  /// job was deleted.
  Result<std::optional<Job>> find_request(const RequestId& request) const;

  /// Durably requests the job's end. A QUEUED or PAUSED job is CANCELLED at once; an active one
  /// gets cancel_requested, and the caller must stop its worker; a finished one is returned
  /// unchanged. NOT_FOUND/JOB_NOT_FOUND.
  Result<Job> request_cancel(const std::string& project, const std::string& id);

  /// Durably requests that the job leaves its device. A QUEUED job is PAUSED at once; an active one
  /// gets pause_requested, and the caller must stop its worker: its next return to the queue is
  /// PAUSED. FAILED_PRECONDITION/JOB_STATE_CONFLICT once it has ended or its cancellation was
  /// requested; NOT_FOUND/JOB_NOT_FOUND.
  Result<Job> request_pause(const std::string& project, const std::string& id);

  /// PAUSED -> QUEUED, or takes the request to pause back; any other unfinished job is returned
  /// unchanged. FAILED_PRECONDITION/JOB_STATE_CONFLICT; NOT_FOUND/JOB_NOT_FOUND.
  Result<Job> resume(const std::string& project, const std::string& id);

  /// The priority that the scheduler goes by from now on. An unchanged one changes nothing.
  /// FAILED_PRECONDITION/JOB_STATE_CONFLICT once the job has ended; NOT_FOUND/JOB_NOT_FOUND.
  Result<Job> set_priority(const std::string& project, const std::string& id, int32_t priority);

  /// Forgets the checkpoints of a finished job, whose files the caller removes.
  /// FAILED_PRECONDITION/JOB_STATE_CONFLICT; NOT_FOUND/JOB_NOT_FOUND.
  Result<Job> drop_checkpoints(const std::string& uid);

  /// Removes a finished job with its attempts and events; returns it, so that its files can be
  /// removed too. FAILED_PRECONDITION/JOB_STATE_CONFLICT; NOT_FOUND/JOB_NOT_FOUND.
  Result<Job> remove(const std::string& project, const std::string& id);

  /// As remove(), by the uid.
  void remove_ended(std::string uid, Done<Job> done);
  /// Removes events of a finished job. Some hundreds of rows at a time: the writer does nothing
  /// else meanwhile. FAILED_PRECONDITION/JOB_STATE_CONFLICT; NOT_FOUND/JOB_NOT_FOUND.
  void thin_events(ThinEvents thin, Done<void> done);

  /// QUEUED -> STARTING with the next attempt number. ABORTED/JOB_STATE_CONFLICT if it is no longer
  /// QUEUED, for example just cancelled. `reason` and `message` say why these devices were chosen;
  /// there must be at least one.
  Result<Job> start_attempt(const std::string& uid, const std::vector<std::string>& devices,
                            const std::string& nonce_digest, const std::string& reason,
                            const std::string& message);

  /// The live attempts of these jobs, by uid, share a device: what their steps take is theirs alone
  /// no more, and corrects no forecast.
  void note_shared(std::vector<std::string> uids, Done<void> done);

  /// Records what its cluster calls the live attempt, and tells it to those who follow the
  /// job.
  void set_handle(std::string uid, int32_t attempt, std::string handle, std::string text,
                  Done<void> done);

  /// Records the live attempt's process, so that a restarted daemon finds it again.
  void set_process(std::string uid, int32_t attempt, int32_t pid, int64_t process_start,
                   Done<void> done);

  /// Records the digest of the credential that the live attempt's worker has been given, once: the
  /// same one again changes nothing, PERMISSION_DENIED/ENROLMENT_SPENT for another one.
  void set_nonce(std::string uid, int32_t attempt, std::string nonce_digest, Done<void> done);

  /// Applies an update and returns the updated job. ABORTED/ATTEMPT_FENCED;
  /// FAILED_PRECONDITION/JOB_STATE_CONFLICT for a move that can_move refuses;
  /// OUT_OF_RANGE/REPORT_GAP (metadata acknowledged). Updates are applied in the order of the
  /// calls, so a stream of reports need not wait for each answer.
  void update_attempt(AttemptUpdate update, Done<Job> done);

  /// A transition outside of an attempt: QUEUED -> FAILED, for example. FAILED_PRECONDITION/
  /// JOB_STATE_CONFLICT. Moves out of STARTING and RUNNING go through update_attempt.
  void move(std::string uid, Move move, Done<Job> done);

  Result<Job> find(const std::string& project, const std::string& id) const;  // JOB_NOT_FOUND
  Result<Job> find_uid(const std::string& uid) const;                         // JOB_NOT_FOUND
  /// Newest first. INVALID_ARGUMENT/PAGE_TOKEN_INVALID, PAGE_SIZE_NEGATIVE;
  /// NOT_FOUND/ARRAY_NOT_FOUND.
  Result<JobPage> list(const JobQuery& query) const;
  /// STARTING and RUNNING jobs, in order of submission.
  Result<std::vector<Job>> list_active() const;
  /// Calls `take` with every unfinished job, in no order: for the scheduler's first look. It may
  /// have been called before an error.
  Status read_unfinished(const std::function<void(JobBrief)>& take) const;
  /// From now on keeps what each owner uses of the devices, with this half-life; 0: no longer. The
  /// first time it is counted from the attempts that are still there.
  Status keep_uses(int64_t half_life_us);
  Result<Uses> uses() const;
  Result<JobCounts> count() const;
  Result<std::vector<EndedJob>> list_ended(const EndedQuery& query) const;
  /// Returns once every change before this call is committed: a job that ends later has a later
  /// end time.
  Status wait_for_changes();
  Result<Attempt> find_attempt(const std::string& uid, int32_t number) const;  // ATTEMPT_NOT_FOUND

  /// Calls `visit` with the seq and the bytes of the wire of each event with seq > after, in order,
  /// its metrics packed (v1::Event.packed_metrics), until they are
  /// `count_max` events or their bytes `bytes_max` or more, or the next one is behind a gap (one
  /// before the first does not count). With 0 it only looks. `visit` must be short: it holds a
  /// reader. OUT_OF_RANGE/SEQUENCE_IN_FUTURE beyond the newest; JOB_NOT_FOUND.
  using EventVisitor = std::function<void(int64_t seq, std::string_view bytes)>;
  Result<EventRange> visit_events(const std::string& uid, int64_t after, int32_t count_max,
                                  int64_t bytes_max, const EventVisitor& visit) const;

 private:
  StoreCore& core_;
};

}  // namespace trainyard::server
