// server/store/job.h: what the store keeps about a job and its attempts, and the commands that
// change them. Times are microseconds since 1970 (Clock::wall_us), 0 if there is none yet.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/store/dataset_ref.h"
#include "server/store/job_state.h"
#include "src/base/result.h"
#include "trainyard/v1/job_service.pb.h"
#include "trainyard/v1/model_service.pb.h"
#include "trainyard/v1/worker_service.pb.h"

namespace trainyard::server {

/// How far the old events of a finished job were removed (JobStore::thin_events).
enum class EventsThinned : uint8_t { kNo = 0, kBegun = 1, kDone = 2, kNothingToThin = 3 };
constexpr bool some_are_gone(EventsThinned thinned) {
  return thinned == EventsThinned::kBegun || thinned == EventsThinned::kDone;
}

/// From which event on none of a job's is missing; 0 if it has none yet.
constexpr int64_t oldest_seq(int64_t newest_seq, EventsThinned thinned) {
  return some_are_gone(thinned) || newest_seq == 0 ? newest_seq : 1;
}

struct Job {
  std::string project;
  std::string id;     // as in projects/{project}/jobs/{id}; may be reused after a deletion
  std::string uid;    // never reused
  int64_t order = 0;  // of submission, over all projects
  v1::JobSpec spec;
  JobState state = JobState::kQueued;
  std::string reason;
  std::string message;
  int32_t priority = 0;
  bool cancel_requested = false;
  bool pause_requested = false;  // only while it is active
  int32_t attempt = 0;
  std::vector<std::string> devices;  // devices/{device} of the current or last attempt, in order
  int64_t create_time_us = 0;
  int64_t start_time_us = 0;
  int64_t end_time_us = 0;
  v1::RunPlan plan;
  v1::Progress progress;
  int64_t checkpoint_step = 0;
  std::string model;  // the model's id once SUCCEEDED
  int64_t newest_seq = 0;
  int64_t event_time_us = 0;  // of the newest event
  // Workers lost since the newest checkpoint, or since the start (server/scheduler/retry.h).
  int32_t workers_lost = 0;
  // Attempts that count neither as lost nor towards kAttemptsMax.
  int32_t attempts_uncounted = 0;
  // A QUEUED job does not start before this time: the pause after a lost worker.
  int64_t retry_time_us = 0;
  v1::JobOrigin origin;          // without a job: it began by itself
  std::string owner;             // who submitted it; empty for jobs from before there were owners
  int64_t run_time_us = 0;       // in RUNNING, in the attempts that have ended
  int64_t running_since_us = 0;  // only while it is RUNNING
  int32_t waits_for = 0;         // jobs that have to end before this one may start
  EventsThinned events_thinned = EventsThinned::kNo;
  int64_t array = 0;             // the order of its array; 0: it belongs to none
  int32_t array_index = 0;       // its number there
  v1::ArrayMember array_values;  // what it has in place of the array's spec

  std::string name() const { return "projects/" + project + "/jobs/" + id; }
  /// The first one; empty before the first attempt.
  std::string device() const { return devices.empty() ? std::string() : devices.front(); }
  std::string devices_text() const;  // "devices/gpu-0, devices/gpu-1"
};

/// Prefix of the device of a job that a cluster runs, as in clusters/slurm.
inline constexpr std::string_view kClusterPrefix = "clusters/";

/// What a job takes of a device of one kind, of which it has planned bytes and a forecast.
struct DeviceBrief {
  int64_t bytes = 0;  // of its plan, without the overhead of its process
  // From its next start, or from JobBrief::time_us while it runs; 0: unknown.
  double rest_low_s = 0, rest_s = 0, rest_high_s = 0;
};

/// What the scheduler goes by: little enough to be kept in memory for every unfinished job.
struct JobBrief {
  std::string uid;
  int64_t order = 0;
  JobState state = JobState::kQueued;
  int32_t priority = 0;
  bool cancel_requested = false;
  v1::Resources resources;
  std::vector<std::string> devices;
  int32_t workers_lost = 0;
  int64_t retry_time_us = 0;
  std::string owner = {};
  int32_t waits_for = 0;  // above 0, it is not the scheduler's yet
  int64_t run_time_us = 0;
  int64_t running_since_us = 0;
  std::string id = {};
  DeviceBrief on_cpu = {}, on_gpu = {};
  int64_t time_us = 0;  // of its newest event
};
JobBrief brief_of(const Job& job);
/// Fills on_cpu and on_gpu; the rest fills in `state` and `devices` before. A job that is not
/// RUNNING goes on from its checkpoint, however far it came before.
void set_needs(const v1::RunPlan& plan, const v1::Progress& progress, int64_t checkpoint_step,
               JobBrief& brief);

/// What was forecast for the device that a job has got, known or not. A forecast names the first
/// device of its model: where there are several models of GPU, null for a GPU that none names.
const v1::Forecast* forecast_on(const v1::RunPlan& plan, std::string_view device);

v1::Job to_proto(Job job);

/// FAILED_PRECONDITION/JOB_STATE_CONFLICT: "name: job 'x' is RUNNING: `why`".
Error state_conflict(const Job& job, const std::string& why);

/// The reason of a job that was CANCELLED because one that it waited for ended otherwise.
inline constexpr const char* kDependencyFailed = "DEPENDENCY_FAILED";

/// A job that has to end before another one starts.
struct Dependency {
  std::string id;
  bool any_end = false;  // whatever it ends as; false: only SUCCEEDED will do
};

struct NewJob {
  std::string project = "default";
  std::string id;   // empty: the store chooses one
  std::string uid;  // from make_job_uid(), if its files were made before it; else empty
  v1::JobSpec spec;
  v1::RunPlan plan;
  // The dataset that the spec names, with its version. Checked to be READY in the transaction that
  // stores the job, and protected from deletion until the job has ended. Without an id: not
  // checked.
  DatasetRef dataset;
  // The ID of the model that the job starts from, checked and protected likewise. Empty: none. It
  // may be missing yet if `after` has the job that will make it.
  std::string initial_model_id;
  v1::JobOrigin origin;  // with a step: that checkpoint is in place already
  std::string owner;
  std::vector<Dependency> after;  // in the order of the spec's
  // Optional. A second submit with the same ID and the same digest returns the first job.
  std::string request_id;
  std::string request_digest;  // SHA-256 of the request, to recognize a different body
  // The answer to a job that is new: the server cannot take one just now. A request that was seen
  // before still gets its job.
  std::optional<Error> refusal;
  // Shown until the scheduler has considered the job.
  std::string reason = "WAITING_FOR_SCHEDULER";
  std::string message = "The job was accepted and waits for the scheduler.";
};

/// A client's own mark of a request, which it may send again.
struct RequestId {
  std::string project;
  std::string id;
  std::string digest;  // of the request's body
};

/// One start of a job: one worker process.
struct Attempt {
  std::string job_uid;
  int32_t number = 0;
  std::string nonce_digest;   // SHA-256 in hexadecimal of the worker's nonce; the nonce is not kept
  int32_t pid = 0;            // 0 until the process runs
  int64_t process_start = 0;  // field 22 of /proc/{pid}/stat: recognizes a reused pid
  std::string device;         // the first
  int64_t start_time_us = 0;
  int64_t end_time_us = 0;   // 0 while it is the live attempt
  std::string outcome;       // reason of the end
  int64_t acknowledged = 0;  // newest report whose effects are durable
  bool shared = false;       // another job was on its devices (JobStore::note_shared)
  std::string handle;        // what its cluster calls it; empty: not known yet
};

/// A state transition and its reason. Stored with its StateChange event in one transaction.
struct Move {
  JobState to = JobState::kQueued;
  std::string reason;   // stable key, upper snake case
  std::string message;  // one sentence for people
  // To QUEUED: not before this time. To QUEUED or FAILED: a worker was lost, so count it.
  int64_t retry_time_us = 0;
  bool worker_lost = false;
  // To QUEUED: the attempt ended by no doing of the job or its worker.
  bool uncounted = false;
  // The worker was out of sight: it may have ended any time since the newest event, up to which it
  // has trained for certain.
  bool unseen = false;
  int64_t resumed_from_step = 0;  // to RUNNING
};

/// The row of a trained model, stored in the transaction that sets its job to SUCCEEDED.
struct NewModel {
  std::string digest;  // SHA-256 of model.safetensors
  int64_t size_bytes = 0;
  int64_t parameter_count = 0;
  v1::DatasetSchema schema;
  std::vector<v1::WeightTensor> tensors = {};
};

/// Everything that one message of a worker, or one observation of the supervisor, changes: stored
/// completely or not at all. The end of the attempt is a `move` to QUEUED, PAUSED or a terminal
/// state.
struct AttemptUpdate {
  std::string job_uid;
  int32_t attempt = 0;
  // The worker's number of this report: one more than the acknowledged one is applied, a lower one
  // is answered with OK and changes nothing (sent again after a lost reply), a gap is refused.
  // 0: the daemon's own observation, always applied.
  int64_t report_number = 0;
  // Their seq, time and attempt are filled by the store. Metric batches also update
  // progress.metrics and progress.step; checkpoints without an error update checkpoint_step.
  std::vector<v1::Event> events;
  std::optional<v1::RunPlan> plan;
  std::optional<int64_t> step;
  std::optional<double> samples_per_second;
  std::optional<v1::RunTimes> times;  // of the attempt
  std::optional<Move> move;
  std::optional<NewModel> model;                              // only with a move to SUCCEEDED
  std::vector<std::pair<std::string, double>> final_metrics;  // into progress.metrics
  std::vector<v1::ConfusionMatrix> confusion_matrices;        // into progress
  std::vector<v1::Baseline> baselines;                        // likewise
  std::vector<std::string> warnings;                          // likewise
  std::string node;  // of a job that ends on a cluster's: what it is, as far as known

  /// Takes what a training task's outcome says of its result.
  void add_result(const v1::Outcome& outcome);
};

/// The changes of a worker's report, for every kind except the outcome, which the supervisor
/// interprets: it adds `move` (and `model`) to the result. A Started report is a move to RUNNING.
AttemptUpdate update_from_report(std::string job_uid, int32_t attempt,
                                 const v1::WorkerReport& report);

using Labels = std::map<std::string, std::string>;  // JobSpec.labels

struct JobQuery {
  std::string project = "default";
  int32_t page_size = 50;
  std::string page_token;
  std::vector<JobState> states;      // empty: all
  std::optional<std::string> owner;  // only jobs of this owner
  std::optional<std::string> array;  // only members of this array, by its ID
  bool no_members = false;           // only jobs that belong to no array
  Labels labels;                     // only jobs that have all of these
};
struct JobPage {
  std::vector<Job> jobs;  // newest first
  std::string next_page_token;
};

/// A finished job, as the rules see it that say what is kept.
struct EndedJob {
  std::string project;
  std::string id;
  std::string uid;
  JobState state = JobState::kSucceeded;
  int64_t order = 0;
  int64_t end_time_us = 0;
  int64_t newest_seq = 0;
  int64_t checkpoint_step = 0;
  bool has_model = false;  // it was trained, and not deleted since
  EventsThinned events_thinned = EventsThinned::kNo;
};
/// Finished jobs in the order of their ends, the oldest first.
struct EndedQuery {
  int64_t ended_before_us = INT64_MAX;  // or at that time
  int64_t skip_newest = 0;              // not the last ones that ended, so many of all
  int64_t as_of_us = INT64_MAX;         // who ended later has not ended
  bool to_thin = false;                 // only those that thin_events() was not through with
  int64_t after_time_us = -1;           // behind the job of this end ...
  int64_t after_order = -1;             // ... and order
  int64_t count_max = 100;
};

/// A piece of the events that a finished job loses.
struct ThinEvents {
  struct Range {
    int64_t first = 0;
    int64_t last = 0;
  };
  std::string uid;
  std::vector<Range> gone;
  std::optional<v1::Event> instead;  // of the event with its seq, which is replaced
  EventsThinned then = EventsThinned::kBegun;
};

struct JobCounts {
  int64_t queued = 0;
  int64_t starting = 0;
  int64_t running = 0;
};

}  // namespace trainyard::server
