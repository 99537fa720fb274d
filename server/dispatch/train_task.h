// server/dispatch/train_task.h: one attempt of a job, from its worker's reports to the store.
//
// A terminal state is stored when the worker reports its outcome, before the worker is
// acknowledged. A return to the queue is stored when the process is gone: two attempts never run at
// the same time. What the worker could not tell before its end is taken from its spool.
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

/// How often in a row attempts of each job could not go on because of this host. Thread-safe;
/// forgets with the daemon.
class HostTrouble {
 public:
  /// One more, and no refusal; returns the pause before the next attempt.
  int64_t pause_us(const std::string& job_uid);
  /// A cluster has refused what the job asks for; returns how many times in a row it has.
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
  v1::DatasetSchema schema;  // of the dataset, for the model's row
  int threads = 1;
  bool time_algorithms = true;
  std::shared_ptr<HostTrouble> trouble;
  bool adopted = false;                                   // an earlier daemon started the attempt
  bool elsewhere = false;                                 // on another host (Supervisor::expect)
  std::shared_ptr<ClusterRates> cluster_rates = nullptr;  // null: no node is measured
};

class TrainTask final : public TaskOwner {
 public:
  /// `job` as start_attempt() returned it, or as an attempt that an earlier daemon started left it.
  /// `gone` is called last, when the process is gone, with
  /// whether its device must be checked before it gets another job.
  TrainTask(Store& store, Supervisor& supervisor, const Clock& clock, Job job,
            TrainTaskOptions options, std::function<void(bool doubts_device)> gone);

  /// The worker is being stopped for this job, whose name people see.
  void make_room(std::string for_job);

  void spawned(pid_t pid, int64_t start_time, Done<void> recorded) override;
  void enrolled(std::string nonce_digest, Done<void> recorded) override;
  Result<FileGrant> grant() override;
  Result<v1::Assignment> assignment() override;
  void report(const v1::WorkerReport& report, Done<void> done) override;
  std::optional<v1::CalibrateTask> to_measure() override;
  Status measured(const std::string& rates) override;
  void ended(const TaskEnd& end, TaskHold hold) override;

 private:
  // In the background, one after another, once the process is gone. At first what the worker had on
  // disk that no daemon has acknowledged becomes durable, then the move of the job, and then the
  // files go that nothing reads any more: a kill between any two leaves to the next start what is
  // still to do.
  struct Ending;
  void open_spool(const std::shared_ptr<Ending>& ending);
  void take_reports(const std::shared_ptr<Ending>& ending);
  void note_spool(const Ending& ending);
  void store_end(const std::shared_ptr<Ending>& ending);
  /// `job` is what the store says of it.
  void leave(const Result<Job>& job);

  /// The devices as the worker calls them: on a cluster's node they are its own, from the first.
  std::vector<std::string> node_devices() const;
  /// What the attempt reads and writes, by the daemon's paths, or by names where those mean
  /// nothing.
  Status add_paths(v1::TrainTask& task) const;
  /// The weights that the job starts from; empty if it needs none or they are gone.
  Result<std::string> initial_weights_path() const;
  /// A line of the log, for people.
  v1::WorkerReport without_paths(v1::WorkerReport log) const;
  Result<AttemptUpdate> update_of(const v1::WorkerReport& report);
  std::string completed_message(const v1::Outcome& outcome) const;
  Result<AttemptUpdate> update_from_outcome(const v1::WorkerReport& report);
  Result<NewModel> read_model(const v1::Outcome& outcome) const;
  /// Of the host, not of the job; nothing if there was none.
  std::optional<Error> trouble_of(const TaskEnd& end) const;
  Move move_after(const TaskEnd& end, const Job& job) const;

  bool on_gpus() const { return job_.spec.resources().device() == v1::Resources::GPU; }
  std::string task_id() const { return job_.uid + "-" + std::to_string(job_.attempt); }

  /// What the worker reported about its failed device.
  struct DeviceFault {
    bool of_program = false;  // one of our kernels failed
    std::string message;
  };
  void note_fault(const v1::Outcome& outcome);
  void note_host_trouble(std::string reason, std::string message);
  std::optional<DeviceFault> device_fault() const;
  std::optional<std::string> device_busy() const;
  std::optional<Error> host_trouble() const;
  /// It was asked to stop: for another job, or with the daemon.
  Move after_stop(const Job& job) const;
  /// It ran in a cluster, and no outcome came.
  static Move after_away(const AwayEnd& away, const Job& job, int64_t now_us);
  /// Its place had a time limit, and it ended before that, to go on in another one.
  Move after_time_limit(const Job& job) const;
  static Move after_fault(const DeviceFault& fault, const Job& job, int64_t now_us);

  Store& store_;
  Supervisor& supervisor_;
  const Clock& clock_;
  const Job job_;
  const TrainTaskOptions options_;
  const std::function<void(bool)> gone_;
  std::atomic<int64_t> parameter_count_{0};
  std::atomic<bool> told_adopted_{false};
  std::atomic<bool> stopped_{false};       // the worker reported that it stopped as requested
  std::atomic<bool> continues_{false};     // it stopped before a time limit of its place
  std::atomic<int64_t> resumed_from_{-1};  // as the worker told this daemon; -1: it did not
  mutable Mutex mu_;
  std::optional<v1::NodeFacts> node_ TRAINYARD_GUARDED_BY(mu_);  // where a job has succeeded
  std::optional<DeviceFault> device_fault_ TRAINYARD_GUARDED_BY(mu_);
  std::optional<std::string> device_busy_ TRAINYARD_GUARDED_BY(mu_);  // what the worker said of it
  std::string makes_room_for_ TRAINYARD_GUARDED_BY(mu_);              // a job; empty: none
  std::optional<Error> host_trouble_ TRAINYARD_GUARDED_BY(mu_);  // what it could not read or write
};

}  // namespace trainyard::server
