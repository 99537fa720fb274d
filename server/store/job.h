// server/store/job.h: the stored data of a job and its attempts, and the commands that change them.
// Times are microseconds since 1970 (Clock::wall_us), 0 if there is none yet.
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

/// The progress of removing the old events of a finished job (JobStore::thin_events).
enum class EventsThinned : uint8_t { kNo = 0, kBegun = 1, kDone = 2, kNothingToThin = 3 };
constexpr bool has_thinned_events(EventsThinned thinned) {
  return thinned == EventsThinned::kBegun || thinned == EventsThinned::kDone;
}

/// Returns the seq from which on no event of the job is missing; 0 if it has no events yet.
constexpr int64_t oldest_seq(int64_t newest_seq, EventsThinned thinned) {
  return has_thinned_events(thinned) || newest_seq == 0 ? newest_seq : 1;
}

struct Job {
  std::string project;
  std::string id;     // as in projects/{project}/jobs/{id}; may be reused after a deletion
  std::string uid;    // never reused
  int64_t order = 0;  // rank in the order of submission, over all projects
  v1::JobSpec spec;
  JobState state = JobState::kQueued;
  std::string reason;
  std::string message;
  int32_t priority = 0;
  bool cancel_requested = false;
  bool pause_requested = false;  // true only while the job is active
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
  int64_t event_time_us = 0;  // the time of the newest event
  // Workers lost since the newest checkpoint, or since the start (server/scheduler/retry.h).
  int32_t workers_lost = 0;
  // Attempts that count neither as lost nor towards kAttemptsMax.
  int32_t attempts_uncounted = 0;
  // A QUEUED job does not start before this time: the pause after a lost worker.
  int64_t retry_time_us = 0;
  v1::JobOrigin origin;          // the checkpoint of another job that it began at; empty: none
  std::string owner;             // who submitted the job; empty if unknown
  int64_t run_time_us = 0;       // time in RUNNING, summed over the attempts that have ended
  int64_t running_since_us = 0;  // 0 unless the job is RUNNING
  int32_t waits_for = 0;         // the number of jobs that must end before this one may start
  EventsThinned events_thinned = EventsThinned::kNo;
  int64_t array = 0;             // `order` of its array; 0: it belongs to none
  int32_t array_index = 0;       // its index in the array
  v1::ArrayMember array_values;  // the values that replace those of the array's spec

  std::string name() const { return "projects/" + project + "/jobs/" + id; }
  /// Returns the first device; empty before the first attempt.
  std::string device() const { return devices.empty() ? std::string() : devices.front(); }
  std::string devices_text() const;  // such as "devices/gpu-0, devices/gpu-1"
};

/// A job that runs on a cluster has a device name with this prefix, such as clusters/slurm.
inline constexpr std::string_view kClusterPrefix = "clusters/";

/// A file that a job maps on the CPU. Jobs that map the same parts of the same file share the
/// memory.
struct MappedFileBrief {
  std::string parts;  // identifies the file and its parts; empty: none is mapped
  int64_t bytes = 0;
  auto operator<=>(const MappedFileBrief&) const = default;
};

/// The memory and time that a job is expected to need on a device of one kind (CPU or GPU).
struct DeviceBrief {
  // Planned memory, without the overhead of the process and without JobBrief::mapped.
  int64_t bytes = 0;
  // Remaining run time, counted from the next start, or from JobBrief::time_us while the job runs;
  // 0: unknown.
  double rest_low_s = 0, rest_s = 0, rest_high_s = 0;
};

/// The data from which the scheduler decides, small enough to be kept in memory for every
/// unfinished job.
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
  int32_t waits_for = 0;  // above 0: the scheduler does not consider the job yet
  int64_t run_time_us = 0;
  int64_t running_since_us = 0;
  std::string id = {};
  DeviceBrief on_cpu = {}, on_gpu = {};
  MappedFileBrief mapped = {};
  int64_t time_us = 0;  // the time of its newest event
  bool bf16 = false;    // its recipe's precision is bf16
  std::string project = {};
};
JobBrief brief_of(const Job& job);
/// Sets on_cpu and on_gpu from `plan`, and from the `state` and `devices` that are already in
/// `brief`. A job that is not RUNNING will continue from its checkpoint, so only steps up to there
/// count as done.
void set_needs(const v1::RunPlan& plan, const v1::Progress& progress, int64_t checkpoint_step,
               JobBrief& brief);

/// Returns the number of devices that a job with these resources occupies; on a cluster those of
/// all nodes.
int32_t devices_wanted(const v1::Resources& resources);
/// Returns the number of devices of a job that has these; a cluster is named instead of its
/// devices.
int64_t count_devices(const std::vector<std::string>& devices, const v1::Resources& resources);

/// Returns the forecast for `device`, or null. A forecast names only the first device of its model,
/// so another device gets the only forecast of its kind (CPU or GPU); null if there are several.
const v1::Forecast* forecast_on(const v1::RunPlan& plan, std::string_view device);

v1::Job to_proto(Job job);

/// Returns the error FAILED_PRECONDITION/JOB_STATE_CONFLICT with the message "job 'x' is RUNNING:
/// `why`".
Error state_conflict(const Job& job, const std::string& why);

/// The reason of a job that was CANCELLED because a job that it waited for did not end as required.
inline constexpr const char* kDependencyFailed = "DEPENDENCY_FAILED";

/// A job that has to end before another one starts.
struct Dependency {
  std::string id;
  bool any_end = false;  // true: any terminal state is enough; false: it must be SUCCEEDED
};

struct NewJob {
  std::string project;
  std::string id;            // empty: the store chooses one
  std::string id_stem = {};  // if not empty, the store chooses the first free one of stem1, stem2
  std::string uid;  // from make_job_uid() if files were created before the job's row; else empty
  v1::JobSpec spec;
  v1::RunPlan plan;
  // The dataset that the spec names, with its version. The transaction that stores the job checks
  // that the dataset is READY, and until the job has ended the dataset cannot be deleted. An empty
  // ID skips the check.
  DatasetRef dataset;
  std::string dataset_project = {};  // the project that shares the dataset; empty: the job's
  // The ID of the model that the job starts from, or empty. It is checked and protected in the same
  // way, but the model may not exist yet if `after` contains the job that will create it.
  std::string initial_model_id;
  std::string initial_model_project = {};  // as dataset_project
  v1::JobOrigin origin;  // if it has a step, the files of that checkpoint already exist
  std::string owner;
  std::vector<Dependency> after;  // in the order of the spec's entries
  // Optional. A second submit with the same ID and the same digest returns the first job.
  std::string request_id;
  std::string request_digest;  // SHA-256 of the request, to recognize a different body
  // The error to return if the job would be new, when the server cannot accept jobs. A repeated
  // request still returns the job that it created.
  std::optional<Error> refusal;
  // Shown until the scheduler has considered the job.
  std::string reason = "WAITING_FOR_SCHEDULER";
  std::string message = "The job was accepted and waits for the scheduler.";
};

/// A client's own ID of a request, by which the server recognizes the request when the client
/// repeats it.
struct RequestId {
  std::string project;
  std::string id;
  std::string digest;  // digest of the request's body
};

/// One start of a job: one worker process.
struct Attempt {
  std::string job_uid;
  int32_t number = 0;
  std::string nonce_digest;   // SHA-256 in hexadecimal of the worker's nonce; the nonce is not kept
  int32_t pid = 0;            // 0 until the process runs
  int64_t process_start = 0;  // field 22 of /proc/{pid}/stat: recognizes a reused pid
  std::string device;         // the first of its devices
  int64_t start_time_us = 0;
  int64_t end_time_us = 0;   // 0 while it is the live attempt
  std::string outcome;       // reason of the end
  int64_t acknowledged = 0;  // number of the newest report whose effects are durable
  bool shared = false;  // another job used its devices at the same time (JobStore::note_shared)
  std::string handle;   // the cluster's ID of the attempt; empty until it is known
};

/// A state transition and its reason. Stored with its StateChange event in one transaction.
struct Move {
  JobState to = JobState::kQueued;
  std::string reason;   // stable key, upper snake case
  std::string message;  // one sentence for people
  // Only for a move to QUEUED: the earliest time of the next start.
  int64_t retry_time_us = 0;
  bool worker_lost = false;  // only for a move to QUEUED or FAILED: count a lost worker
  // Only for a move to QUEUED: neither the job nor its worker caused the end of the attempt.
  bool uncounted = false;
  // The daemon did not see the worker end. It may have ended at any time after the newest event, so
  // run time counts only up to that event.
  bool unseen = false;
  int64_t resumed_from_step = 0;  // only for a move to RUNNING
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
  // The worker's number of this report: the store applies the report whose number follows the
  // acknowledged one, returns OK for a lower number without a change (the worker repeats a report
  // after a lost reply), and refuses a gap. 0 stands for an observation of the daemon itself, which
  // is always applied.
  int64_t report_number = 0;
  // The store fills their seq, time and attempt. Metric batches also update progress.metrics and
  // progress.step; checkpoints without an error update checkpoint_step.
  std::vector<v1::Event> events;
  std::optional<v1::RunPlan> plan;
  std::optional<int64_t> step;
  std::optional<double> samples_per_second;
  std::optional<v1::RunTimes> times;  // measured times of the attempt's steps
  std::optional<Move> move;
  std::optional<NewModel> model;                              // only with a move to SUCCEEDED
  std::vector<std::pair<std::string, double>> final_metrics;  // added to progress.metrics
  std::vector<v1::ConfusionMatrix> confusion_matrices;        // added to progress
  std::vector<v1::Baseline> baselines;                        // added to progress
  std::vector<std::string> warnings;                          // added to progress
  std::string node;  // the kind of cluster node on which the attempt ran; empty if unknown

  /// Copies the results of a training task from its outcome into this update, within bounds.
  void add_result(const v1::Outcome& outcome);
};

/// Returns the changes of a worker's report, for every kind except the outcome, which the
/// supervisor interprets: it adds `move` (and `model`) to the result. A Started report is a move to
/// RUNNING.
AttemptUpdate update_from_report(std::string job_uid, int32_t attempt,
                                 const v1::WorkerReport& report);

using Labels = std::map<std::string, std::string>;  // JobSpec.labels

struct JobQuery {
  std::vector<std::string> projects;  // jobs of all of these
  int32_t page_size = 50;
  std::string page_token;
  std::vector<JobState> states;      // empty: all
  std::optional<std::string> owner;  // only jobs of this owner
  // Only members of this array, by its ID. There must be one project then.
  std::optional<std::string> array;
  bool no_members = false;  // only jobs that belong to no array
  Labels labels;            // only jobs that have all of these labels
};
struct JobPage {
  std::vector<Job> jobs;  // newest first
  std::string next_page_token;
};

/// The data of a finished job that the retention rules need.
struct EndedJob {
  std::string project;
  std::string id;
  std::string uid;
  JobState state = JobState::kSucceeded;
  int64_t order = 0;
  int64_t end_time_us = 0;
  int64_t newest_seq = 0;
  int64_t checkpoint_step = 0;
  bool has_model = false;  // its trained model exists and was not deleted
  EventsThinned events_thinned = EventsThinned::kNo;
};
/// Finished jobs in the order of their ends, the oldest first.
struct EndedQuery {
  int64_t ended_before_us = INT64_MAX;  // includes jobs that ended at this time
  int64_t skip_newest = 0;              // leaves out this many of the jobs that ended last
  int64_t as_of_us = INT64_MAX;         // jobs that ended later are treated as unfinished
  bool to_thin = false;        // only jobs whose events thin_events() has not finished thinning
  int64_t after_time_us = -1;  // starts after the job with this end time
  int64_t after_order = -1;    // the order of that job
  int64_t count_max = 100;
};

/// One transaction's part of the events to be removed from a finished job.
struct ThinEvents {
  struct Range {
    int64_t first = 0;
    int64_t last = 0;
  };
  std::string uid;
  std::vector<Range> gone;
  std::optional<v1::Event> instead;  // replaces the event that has the same seq
  EventsThinned then = EventsThinned::kBegun;
};

struct JobCounts {
  int64_t queued = 0;
  int64_t starting = 0;
  int64_t running = 0;
};

}  // namespace trainyard::server
