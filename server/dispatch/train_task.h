// server/dispatch/train_task.h: one attempt of a job: stores its worker's reports and its end.
//
// A terminal state is stored when the worker reports its outcome, before the worker is
// acknowledged. A return to the queue is stored only after the process has ended, so that two
// attempts never run at the same time. Reports that the worker could not deliver before its end are
// read from its spool.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "server/config/paths.h"
#include "server/processes/supervisor.h"
#include "server/store/store.h"
#include "src/base/mutex.h"

namespace trainyard::server {

class ClusterRates;

/// Counts, for each job, how many attempts in a row could not continue because of this host.
/// Thread-safe; the counts are lost when the daemon ends.
class HostTrouble {
 public:
  /// Counts one more attempt that could not continue, resets the count of refusals, and returns the
  /// pause in microseconds before the next attempt.
  int64_t pause_us(const std::string& job_uid);
  /// Counts one more refusal by the job's cluster and returns how many there were in a row.
  int32_t refused(const std::string& job_uid);
  void over(const std::string& job_uid);

 private:
  Mutex mu_;
  std::unordered_map<std::string, int32_t> times_ TRAINYARD_GUARDED_BY(mu_);
  std::unordered_map<std::string, int32_t> refusals_ TRAINYARD_GUARDED_BY(mu_);
};

struct TrainTaskOptions {
  StatePaths paths;
  std::string dataset_digest;
  v1::DatasetSchema schema;  // schema of the dataset, stored in the model's row
  int threads = 1;
  bool time_algorithms = true;
  std::shared_ptr<HostTrouble> trouble;
  bool adopted = false;    // an earlier daemon started the attempt
  bool is_remote = false;  // the worker runs on another host (Supervisor::add_remote)
  std::shared_ptr<ClusterRates> cluster_rates = nullptr;  // null: nodes are not measured
};

class TrainTask final : public TaskOwner {
 public:
  /// `job` must be the result of start_attempt(), or the stored job if an earlier daemon started
  /// the attempt. `gone` is called last, after the process has ended; `doubts_device` says whether
  /// its devices must be checked before they get another job.
  TrainTask(Store& store, Supervisor& supervisor, const Clock& clock, Job job,
            TrainTaskOptions options, std::function<void(bool doubts_device)> gone);

  /// Notes that the worker is being stopped to make room for another job, which messages mention in
  /// these words: "digits-3, a job of higher priority".
  void make_room(std::string for_job);

  /// Returns what the attempt's worker on this host may do.
  v1::WorkerSandbox sandbox() const;

  void spawned(pid_t pid, int64_t start_time, Done<void> recorded) override;
  void enrolled(std::string nonce_digest, Done<void> recorded) override;
  Result<FileGrant> grant() override;
  Result<v1::Assignment> assignment() override;
  void report(const v1::WorkerReport& report, Done<void> done) override;
  std::optional<v1::CalibrateTask> to_measure() override;
  Status measured(const std::string& rates) override;
  void ended(const TaskEnd& end, TaskHold hold) override;

 private:
  // The following steps run in the background, one after another, after the process has ended.
  // First the reports in the worker's spool that no daemon has acknowledged are stored, then the
  // job's move; then the files that nothing reads any more are deleted. If the daemon is killed
  // between two steps, its next start does the rest.
  struct Ending;
  void open_spool(const std::shared_ptr<Ending>& ending);
  void take_reports(const std::shared_ptr<Ending>& ending);
  void note_spool(const Ending& ending);
  void store_end(const std::shared_ptr<Ending>& ending);
  /// `job` is the stored job or the store's error.
  void leave(const Result<Job>& job);

  /// Returns the names of the devices from the worker's point of view. On a cluster's node they are
  /// numbered from 0.
  std::vector<std::string> node_devices() const;
  /// Sets the paths that the attempt reads and writes. A remote worker gets fixed names instead of
  /// the daemon's paths.
  Status add_paths(v1::TrainTask& task) const;
  /// Returns the path of the weights that the job starts from; empty if it needs none or they were
  /// deleted.
  Result<std::string> initial_weights_path() const;
  /// Removes the daemon's paths from a log report, which users see.
  v1::WorkerReport without_paths(v1::WorkerReport log) const;
  Result<AttemptUpdate> update_of(const v1::WorkerReport& report);
  std::string completed_message(const v1::Outcome& outcome) const;
  Result<AttemptUpdate> update_from_outcome(const v1::WorkerReport& report);
  Result<NewModel> read_model(const v1::Outcome& outcome) const;
  /// Returns the problem of the host that ended the attempt; nothing if the host was not the cause.
  std::optional<Error> trouble_of(const TaskEnd& end) const;
  Move move_after(const TaskEnd& end, const Job& job) const;

  bool on_gpus() const { return job_.spec.resources().device() == v1::Resources::GPU; }
  std::string task_id() const { return job_.uid + "-" + std::to_string(job_.attempt); }

  /// The worker's report about its failed device.
  struct DeviceFault {
    bool of_program = false;  // a kernel of the engine failed
    std::string message;
  };
  void note_fault(const v1::Outcome& outcome);
  void note_host_trouble(std::string reason, std::string message);
  std::optional<DeviceFault> device_fault() const;
  std::optional<std::string> device_busy() const;
  std::optional<Error> host_trouble() const;
  /// Returns whether the devices must be checked before they get another job.
  bool doubts_device() const;
  /// Returns the move after the worker was requested to stop, for another job or because the daemon
  /// ends.
  Move after_stop(const Job& job) const;
  /// Returns the move after an attempt in a cluster ended without an outcome.
  static Move after_remote_end(const RemoteEnd& remote_end, const Job& job, int64_t now_us);
  /// Returns the move after the worker stopped before the time limit of its cluster job, to
  /// continue in another one.
  Move after_time_limit(const Job& job) const;
  static Move after_fault(const DeviceFault& fault, const Job& job, int64_t now_us);

  Store& store_;
  Supervisor& supervisor_;
  const Clock& clock_;
  const Job job_;
  const TrainTaskOptions options_;
  const std::function<void(bool)> gone_;
  std::atomic<int64_t> parameter_count_{0};
  std::atomic<bool> reported_adoption_{false};
  std::atomic<bool> stopped_{false};  // the worker reported that it stopped as requested
  // The worker stopped before the time limit of its cluster job.
  std::atomic<bool> continues_{false};
  // the step that the worker reported to this daemon; -1: not reported
  std::atomic<int64_t> resumed_from_{-1};
  mutable Mutex mu_;
  std::optional<v1::NodeFacts> node_ TRAINYARD_GUARDED_BY(mu_);  // set when the job has succeeded
  std::optional<DeviceFault> device_fault_ TRAINYARD_GUARDED_BY(mu_);
  std::optional<std::string> device_busy_ TRAINYARD_GUARDED_BY(mu_);  // the worker's message
  std::string makes_room_for_ TRAINYARD_GUARDED_BY(mu_);  // the job, in words; empty: none
  // An error of the host, such as an unreadable file.
  std::optional<Error> host_trouble_ TRAINYARD_GUARDED_BY(mu_);
};

}  // namespace trainyard::server
