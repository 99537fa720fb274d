// server/processes/supervisor.h: starts, monitors and ends worker processes; never trains.
//
// A task is a worker process with its assignment: train an attempt of a job, ingest a dataset,
// predict. The supervisor manages the processes and their connections; the task's owner interprets
// the reports.
//
//   start()  ->  spawned  ->  attach (versions, nonce)  ->  reports ...  ->  ended
//   adopt()  ------------------------------------------>  reports ...  ->  ended
//
// A task that outlives the daemon keeps running when the daemon dies or release() is called. The
// next daemon adopts it: the pid, the start time, and the task's ID in the environment identify the
// process, and the nonce authenticates its stream.
//
// A task may also be remote (add_remote()): a placement starts its process on another host and
// observes its end. Such a task enrols with a secret. The supervisor never kills its process; it
// asks the placement to end it (withdraw).
//
// A silent worker is not assumed to be dead: a worker that has been silent for the heartbeat
// timeout is killed in steps (SIGTERM, then SIGKILL), and its owner is informed only when the
// process has ended. The same applies to a worker whose heartbeats show no progress (kStallFactor).
// One thread owns the processes: it spawns them, waits for their pidfds and output, and sleeps when
// there are none. It waits for nothing else, so a store that stalls, or the files of one task,
// delay no other task's start, deadline or end.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/config/config.h"
#include "server/processes/process.h"
#include "server/store/done.h"
#include "src/base/clock.h"
#include "src/base/result.h"
#include "trainyard/v1/worker_service.pb.h"

namespace trainyard::server {

/// A worker is stalled when it has shown no progress for this many times its usual interval, and
/// for SupervisorOptions::stall_ms.
inline constexpr int64_t kStallFactor = 20;

/// A cluster's information about the end of a task that ran there (server/cluster/end_watch.h).
struct RemoteEnd {
  // The cluster's words: NODE_FAIL, FAILED (NonZeroExitCode); empty: the cluster shows it no
  // longer.
  std::string how;
  std::string text;  // for people
};

/// How a task ended.
struct TaskEnd {
  std::optional<Error> start_error;  // the process could not be started
  ExitStatus exit;
  bool attached = false;  // the worker had attached
  bool silent = false;    // killed because it was silent
  // killed because it had shown no progress for this long; 0: not for this reason
  int64_t stalled_ms = 0;
  bool late = false;           // killed because its time limit was over
  bool stop_asked = false;     // ended after stop()
  bool outcome_taken = false;  // an outcome was reported, and its effects are durable
  bool version_skew = false;
  bool lost_from_sight = false;         // adopted, and ended before it sent anything
  std::string output_tail;              // the worker's newest output
  std::optional<RemoteEnd> remote_end;  // for a remote task that ended without an outcome
};

/// An ended task counts as running until the last copy of its hold is destroyed.
using TaskHold = std::shared_ptr<void>;

/// The daemon's files that a remote worker may read and write.
struct FileGrant {
  std::filesystem::path dataset;          // a folder, to read
  std::filesystem::path initial_weights;  // a file, to read; empty: none
  std::filesystem::path checkpoints;      // a folder: the newest one is read, new ones are stored
  std::filesystem::path model;            // the folder in which the model is stored
  v1::JobSpec spec;                       // its recipe says which checkpoints stay
  int64_t push_bytes_max = 0;             // limit of one checkpoint, or of the model
};

enum class FileUse : uint8_t { kRead, kWrite };

/// Where a worker's call arrived: at the Unix socket, or at the port for remote workers.
enum class WorkerEndpointKind : uint8_t { kLocal, kRemote };

/// The owner of a task. The supervisor keeps it alive until the task's TaskHold is destroyed.
class TaskOwner {
 public:
  virtual ~TaskOwner() = default;
  /// Called when the process exists and waits for its nonce. It gets the nonce once `recorded` has
  /// been called with OK, on any thread; after an error it is killed. Called on the supervisor's
  /// thread: must not wait.
  virtual void spawned(pid_t /*pid*/, int64_t /*start_time*/, Done<void> recorded) { recorded({}); }
  /// Called when the remote worker has got a credential with this digest. The digest must be
  /// durable before `recorded` is called with OK, on any thread. Called on a service thread: must
  /// not wait. May be called again with the same digest.
  virtual void enrolled(std::string /*nonce_digest*/, Done<void> recorded) { recorded({}); }
  /// Returns the files for a remote worker. Called on a service thread.
  virtual Result<FileGrant> grant() {
    return make_error(ErrorCode::kNotFound, "FILE_NOT_FOUND", "this task has no files");
  }
  /// Returns the worker's assignment. Called on a service thread.
  virtual Result<v1::Assignment> assignment() = 0;
  /// Called with each report, in order, from one thread at a time. `done` must be called once, on
  /// any thread, when the report's effects are durable; an error there ends the worker.
  virtual void report(const v1::WorkerReport& report, Done<void> done) = 0;
  /// Called when the remote worker's outcome is durable. Returns what the worker is to measure
  /// before it ends. Called on any thread: must not wait. May be called again.
  virtual std::optional<v1::CalibrateTask> to_measure() { return std::nullopt; }
  /// Receives the rates that the worker has measured, as JSON. Called on a service thread.
  virtual Status measured(const std::string& /*rates*/) {
    return make_error(ErrorCode::kFailedPrecondition, "RATES_NOT_REQUESTED",
                      "no rates were requested from this task");
  }
  /// Called when the process has ended, as the last of these functions, on the supervisor's thread,
  /// or in the background: must not wait. An owner that has to store or delete something keeps
  /// `hold` until that is done (Supervisor::in_background).
  virtual void ended(const TaskEnd& end, TaskHold hold) = 0;
};

/// Sends commands to an attached worker.
class CommandSink {
 public:
  virtual ~CommandSink() = default;
  virtual void send(const v1::WorkerCommand& command) = 0;
};

struct SupervisorOptions {
  std::filesystem::path worker;
  std::filesystem::path socket;   // the WorkerService's socket
  std::filesystem::path log_dir;  // folder for workers' output
  int64_t heartbeat_ms = 5'000;   // heartbeat interval that workers get
  int64_t silence_ms = 30'000;    // a worker is killed after this much silence
  // Least time without progress after which a worker is killed; 0: none is.
  int64_t stall_ms = 600'000;
  int64_t stop_grace_ms = 30'000;  // from stop() to SIGKILL; SIGTERM after a third of it
  int64_t kill_grace_ms = 5'000;   // from SIGTERM to SIGKILL for a silent worker
  // How long a worker continues without a daemon; 0: no task outlives the daemon.
  int64_t unattended_ms = 0;
  // kOff: NewTask::sandbox has no effect.
  SandboxMode sandbox = SandboxMode::kOff;
  // What this host lacks for a whole sandbox, as a sentence; empty: nothing. Refuses every task if
  // the sandbox is required.
  std::string sandbox_missing;
  // Become the parent of processes that a worker leaves behind, and reap them. Only for a process
  // whose only children are workers.
  bool adopt_orphans = false;
};

/// Thread-safe.
class Supervisor {
 public:
  explicit Supervisor(SupervisorOptions options, const Clock& clock = system_clock());
  /// Kills the workers that still run, and waits for their end.
  ~Supervisor();

  struct NewTask {
    std::string id;    // empty: the supervisor chooses one
    std::string kind;  // for logs
    // It is to outlive the daemon, if SupervisorOptions::unattended_ms allows it.
    bool outlives = false;
    std::shared_ptr<TaskOwner> owner;
    std::string nonce = make_nonce();
    int64_t time_max_ms = 0;  // the worker is ended (SIGTERM, SIGKILL) after this; 0: never
    // UUIDs of the worker's GPUs: CUDA shows the worker only these, in this order. If empty, it
    // sees the GPUs that the daemon's environment allows.
    std::vector<std::string> gpus;
    v1::WorkerSandbox sandbox;  // server/processes/worker_sandbox.h
  };
  /// Returns 64 hexadecimal digits from the system's random source.
  static std::string make_nonce();

  /// Starts a worker; returns its task ID. Failures are passed to ended().
  std::string start(NewTask task);
  struct AdoptedTask {
    std::string id;
    std::string kind;
    std::shared_ptr<TaskOwner> owner;
    std::string nonce_digest;  // SHA-256 in hexadecimal
    pid_t pid = 0;
    int64_t start_time = 0;
  };
  /// Adopts a task that an earlier daemon started with this ID. Its owner's spawned() is not
  /// called. If the process has ended, ended() is called immediately.
  void adopt(AdoptedTask task);

  /// A remote task, whose process a placement starts on another host.
  struct RemoteTask {
    std::string id;
    std::string kind;
    std::shared_ptr<TaskOwner> owner;
    std::string secret_digest;  // SHA-256 in hexadecimal of the enrolment secret
    std::string nonce_digest;   // of its credential, if it enrolled with an earlier daemon
    // How long it may be silent, and how long it continues without a daemon.
    int64_t lease_ms = 0;
    // Requests the end of the process from the placement. `why` is "cancel" or another reason of
    // stop(), "silent" or "stalled". Called at most once, in the background: must not wait.
    std::function<void(std::string why)> withdraw;
    int64_t nodes = 1;  // the number of its workers; the first one is the task's own
  };
  /// Adds a remote task. Its owner's ended() is called after the placement has observed the end
  /// (ended_remote()), or shortly after an outcome was taken. stop() sends a command to such a
  /// task and withdraws it when the grace period is over, or immediately if it has not enrolled.
  /// The daemon's own end does not end it: release() only drops it, stop_all() and kill_all() do
  /// nothing to it, wait_idle() does not wait for it.
  void add_remote(RemoteTask task);
  /// Reports that, according to the placement, a remote task's process has certainly ended. The
  /// caller sets start_error, exit, version_skew and output_tail in `end`, and `remote_end`; the
  /// supervisor sets the rest.
  void ended_remote(const std::string& task, TaskEnd end);
  /// Returns whether the task has a stream at the moment.
  bool connected(const std::string& task) const;
  /// Returns the time since the task's worker last sent something; nothing for a task that is not
  /// remote or has not enrolled.
  std::optional<int64_t> silent_ms(const std::string& task) const;

  /// Leaves the tasks that outlive the daemon to the next daemon: their owners are not called any
  /// more.
  void release();
  /// Requests that the worker stops, with `reason`, and ends it after `grace_ms` (0: stop_grace_ms
  /// of the options). Does nothing if the task has ended; a second call may shorten the grace
  /// period.
  void stop(const std::string& task, const std::string& reason, int64_t grace_ms = 0);
  /// Sends a command to a worker. The command is lost if the task or its stream has ended.
  void send(const std::string& task, const v1::WorkerCommand& command);
  /// Calls stop() for every task of this host.
  void stop_all(const std::string& reason, int64_t grace_ms);
  /// Kills every worker immediately; for a second signal to the daemon.
  void kill_all();
  /// Runs `work` on a background thread: for the work that an ended task leaves, such as deleting
  /// files. It must not wait for the store, because other work waits behind it.
  void in_background(std::function<void()> work);
  /// Waits until no task of this host is left. False after `timeout_ms`.
  bool wait_idle(int64_t timeout_ms);
  int task_count() const;

  // The WorkerService calls the following functions. ABORTED/ATTEMPT_FENCED for an unknown task or
  // a wrong nonce.

  /// Returns the assignment. FAILED_PRECONDITION/VERSION_SKEW if worker and daemon have no protocol
  /// version in common.
  Result<v1::Assignment> attach(const v1::AttachRequest& request,
                                WorkerEndpointKind endpoint = WorkerEndpointKind::kLocal);
  /// Binds a stream to the task that its first message names; an earlier stream of the same worker
  /// gets no more commands. FAILED_PRECONDITION/VERSION_SKEW for a protocol version that this
  /// daemon does not speak: the worker then stops.
  Status connect(const v1::WorkerReport& first, std::shared_ptr<CommandSink> sink,
                 WorkerEndpointKind endpoint = WorkerEndpointKind::kLocal);
  /// Reports that the task's stream has ended.
  void disconnect(const std::string& task, const CommandSink* sink);
  /// Passes a report of a connected task to its owner.
  void report(const std::string& task, const v1::WorkerReport& report, Done<void> done);
  /// Exchanges a remote task's secret for its credential (worker_service.proto). `done` is called
  /// on any thread. PERMISSION_DENIED/ENROLMENT_USED, FAILED_PRECONDITION/VERSION_SKEW.
  void enrol(const v1::EnrolRequest& request, Done<void> done);
  /// Returns the files of an enrolled task. Only the worker of the first node may write files.
  Result<FileGrant> grant(const std::string& task, const std::string& nonce,
                          FileUse use = FileUse::kRead);
  /// Returns the rendezvous of the workers of a task's nodes. INVALID_ARGUMENT/FIELD_INVALID.
  Result<v1::RendezvousResponse> rendezvous(const v1::RendezvousRequest& request);
  /// Passes on the rates that a remote task's first worker has measured (TaskOwner::to_measure).
  Result<v1::SendRatesResponse> take_rates(const v1::SendRatesRequest& request);
  /// Returns an error unless the task is still running with this credential.
  Status admit(const std::string& task, const std::string& nonce);
  /// Returns an error unless the credential is that of a worker, of any node, of a running remote
  /// task.
  Status admit_any_rank(const std::string& task, const std::string& nonce);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;  // also owned by the callbacks of pending reports
};

}  // namespace trainyard::server
