// server/processes/supervisor.h: starts, watches and ends worker processes; never trains.
//
// A task is one worker process with something to do: train an attempt of a job, ingest a dataset,
// predict. The supervisor knows processes and their connections; the task's owner interprets the
// reports.
//
//   start()  ->  spawned  ->  attach (versions, nonce)  ->  reports ...  ->  ended
//   adopt()  ------------------------------------------>  reports ...  ->  ended
//
// A task that outlives the daemon is left running when the daemon dies or release() is called. The
// next daemon adopts it: pid, start time, and the task's id in its environment prove the process,
// the nonce proves its stream.
//
// A task may also be elsewhere (expect()): no process of ours, but one that a placement starts on
// another host and sees end. It enrols by a secret, its silence kills nothing, and what the daemon
// cannot do itself it asks of the placement (withdraw).
//
// Silence is not death: a worker that has been silent for the heartbeat timeout is killed in steps
// (TERM, then KILL), and its owner learns of the end when the process is gone, not before. So is
// one whose heartbeats say that its work stands still (kStallFactor). One
// thread owns the processes: it spawns, waits on their pidfds and output, and sleeps when there is
// none. It waits for nothing else: a store that stalls, or the files of one task, hold up no other
// task's start, deadline or end.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/processes/process.h"
#include "server/store/done.h"
#include "src/base/clock.h"
#include "src/base/result.h"
#include "trainyard/v1/worker_service.pb.h"

namespace trainyard::server {

/// A worker stalls when it has shown no progress for this many times what it usually takes, and for
/// SupervisorOptions::stall_ms.
inline constexpr int64_t kStallFactor = 20;

/// What a cluster says of the end of a task that ran there (server/cluster/end_watch.h).
struct AwayEnd {
  std::string how;  // in its words: NODE_FAIL, FAILED (NonZeroExitCode); empty: it shows it no more
  std::string text;  // for people
};

/// How a task ended.
struct TaskEnd {
  std::optional<Error> start_error;  // there was no process
  ExitStatus exit;
  bool attached = false;       // it had come for its work
  bool silent = false;         // killed because it was silent
  int64_t stalled_ms = 0;      // killed because it had shown no progress for so long
  bool late = false;           // killed because its time was over
  bool stop_asked = false;     // ended after stop()
  bool outcome_taken = false;  // an outcome was reported, and its effects are durable
  bool version_skew = false;
  bool lost_from_sight = false;  // adopted, and gone before it was heard of
  std::string output_tail;       // its newest output
  std::optional<AwayEnd> away;   // of a task elsewhere that ended without an outcome
};

/// An ended task counts as running until the last copy of this is gone.
using TaskHold = std::shared_ptr<void>;

/// What a worker from elsewhere may read and write of the daemon's files.
struct FileGrant {
  std::filesystem::path dataset;          // a folder, to read
  std::filesystem::path initial_weights;  // a file, to read; empty: none
  std::filesystem::path checkpoints;      // a folder: the newest is read, new ones are put there
  std::filesystem::path model;            // a folder that is put there
  v1::JobSpec spec;                       // its recipe says which checkpoints stay
  int64_t push_bytes_max = 0;             // of one checkpoint, or of the model
};

enum class FileUse : uint8_t { kRead, kWrite };

/// Where a worker's call came in: on the Unix socket, or on the port for workers from elsewhere.
enum class WorkerDoorKind : uint8_t { kHere, kElsewhere };

/// The owner of a task. Kept alive by the supervisor until the end is over (TaskHold).
class TaskOwner {
 public:
  virtual ~TaskOwner() = default;
  /// The process exists and waits: it gets its nonce once `recorded` has been called with OK, on
  /// any thread; after an error it is killed. On the supervisor's thread: must not wait.
  virtual void spawned(pid_t /*pid*/, int64_t /*start_time*/, Done<void> recorded) { recorded({}); }
  /// The worker from elsewhere has a credential of this digest, which must be durable before
  /// `recorded` is called with OK, on any thread. On a service thread: must not wait. May be called
  /// again with the same digest.
  virtual void enrolled(std::string /*nonce_digest*/, Done<void> recorded) { recorded({}); }
  /// The files for a worker from elsewhere. On a service thread.
  virtual Result<FileGrant> grant() {
    return make_error(ErrorCode::kNotFound, "FILE_NOT_FOUND", "this task has no files");
  }
  /// The worker's assignment. On a service thread.
  virtual Result<v1::Assignment> assignment() = 0;
  /// A report, in order, from one thread at a time. `done` is called once, when its effects are
  /// durable, on any thread; an error there ends the worker.
  virtual void report(const v1::WorkerReport& report, Done<void> done) = 0;
  /// The outcome of a worker from elsewhere is durable: what it is to measure before it ends, now
  /// that nobody waits for it. On any thread: must not wait. May be called again.
  virtual std::optional<v1::CalibrateTask> to_measure() { return std::nullopt; }
  /// What it has measured. On a service thread.
  virtual Status measured(const std::string& /*rates*/) {
    return make_error(ErrorCode::kFailedPrecondition, "RATES_NOT_ASKED",
                      "this task is asked for no rates");
  }
  /// The process is gone; nothing is called after this. On the supervisor's thread, or in the
  /// background: must not wait. An owner that has to store or remove something keeps `hold` until
  /// that is done (Supervisor::in_background).
  virtual void ended(const TaskEnd& end, TaskHold hold) = 0;
};

/// Where commands to an attached worker go.
class CommandSink {
 public:
  virtual ~CommandSink() = default;
  virtual void send(const v1::WorkerCommand& command) = 0;
};

struct SupervisorOptions {
  std::filesystem::path worker;
  std::filesystem::path socket;    // of the WorkerService
  std::filesystem::path log_dir;   // workers' output
  int64_t heartbeat_ms = 5'000;    // asked of workers
  int64_t silence_ms = 30'000;     // ended after
  int64_t stall_ms = 600'000;      // the least time without progress that ends it; 0: none does
  int64_t stop_grace_ms = 30'000;  // from stop() to KILL; TERM after a third of it
  int64_t kill_grace_ms = 5'000;   // from TERM to KILL for a silent worker
  int64_t unattended_ms = 0;  // a task that outlives the daemon goes on for so long; 0: none does
  // Become the parent of processes that a worker leaves behind, and reap them. For a process whose
  // only children are workers.
  bool adopt_orphans = false;
};

/// Thread-safe.
class Supervisor {
 public:
  explicit Supervisor(SupervisorOptions options, const Clock& clock = system_clock());
  /// Kills what still runs, and waits for it.
  ~Supervisor();

  struct NewTask {
    std::string id;         // empty: chosen
    std::string kind;       // for logs
    bool outlives = false;  // the daemon, if SupervisorOptions::unattended_ms lets it
    std::shared_ptr<TaskOwner> owner;
    std::string nonce = make_nonce();
    int64_t time_max_ms = 0;  // the ladder begins after this; 0: never
    // UUIDs of the GPUs that it computes on: CUDA shows it only these, in this order. Empty: as in
    // the daemon's environment.
    std::vector<std::string> gpus;
  };
  /// 64 hexadecimal digits from the system's random source.
  static std::string make_nonce();

  /// Starts a worker; returns its task id. Failures arrive at ended().
  std::string start(NewTask task);
  /// A task that an earlier daemon started with this id; its owner's spawned() is not called. If
  /// the process is gone, ended() follows at once.
  struct AdoptedTask {
    std::string id;
    std::string kind;
    std::shared_ptr<TaskOwner> owner;
    std::string nonce_digest;  // SHA-256 in hexadecimal
    pid_t pid = 0;
    int64_t start_time = 0;
  };
  void adopt(AdoptedTask task);

  /// A task whose process a placement starts on another host.
  struct ElsewhereTask {
    std::string id;
    std::string kind;
    std::shared_ptr<TaskOwner> owner;
    std::string secret_digest;  // SHA-256 in hexadecimal of the enrolment secret
    std::string nonce_digest;   // of its credential, if it enrolled with an earlier daemon
    int64_t lease_ms = 0;       // it may be silent for so long, and goes on for so long alone
    // Asks the placement to end the process: "cancel" and other reasons of stop(), "silent",
    // "stalled". Called once at most, in the background: must not wait.
    std::function<void(std::string why)> withdraw;
    int64_t nodes = 1;  // workers of it, of which the first is the task's own
  };
  /// The owner's ended() follows once the placement has seen the end (ended_elsewhere), or shortly
  /// after an outcome was taken. stop() sends a command to such a task and withdraws it when the
  /// grace is over, at once if it has not enrolled. The daemon's own end leaves it: release(),
  /// stop_all() and kill_all() do nothing to it, wait_idle() does not wait for it.
  void expect(ElsewhereTask task);
  /// The placement has seen the process end, for certain. Of `end` the supervisor fills what it
  /// knows itself: all but start_error, exit, version_skew and output_tail.
  void ended_elsewhere(const std::string& task, TaskEnd end);
  /// Whether the task has a stream now.
  bool connected(const std::string& task) const;
  /// Time since it was last heard; nothing of a task that is not elsewhere or has not enrolled.
  std::optional<int64_t> silent_ms(const std::string& task) const;

  /// Leaves the tasks that outlive the daemon to the next one: their owners hear no more of them.
  void release();
  /// Asks the worker to stop, giving `reason`, and makes sure that it does within `grace_ms` (0:
  /// the option's). Not an error if the task is gone; a second call may shorten the grace.
  void stop(const std::string& task, const std::string& reason, int64_t grace_ms = 0);
  /// Hands a command to a worker. Not an error if the task is gone, or its stream: then it is lost.
  void send(const std::string& task, const v1::WorkerCommand& command);
  /// stop() for every task of this host.
  void stop_all(const std::string& reason, int64_t grace_ms);
  /// Kills every worker at once; for a second signal to a daemon in a hurry.
  void kill_all();
  /// Runs `work` beside the supervisor's thread, some time: for what an ended task leaves to do,
  /// and the files that it needs. It must not wait for the store, because others wait behind it.
  void in_background(std::function<void()> work);
  /// Waits until no task of this host is left. False after `timeout_ms`.
  bool wait_idle(int64_t timeout_ms);
  int task_count() const;

  // What the WorkerService calls. ABORTED/ATTEMPT_FENCED for an unknown task or a wrong nonce.

  /// FAILED_PRECONDITION/VERSION_SKEW if they have no version of the protocol in common.
  Result<v1::Assignment> attach(const v1::AttachRequest& request,
                                WorkerDoorKind door = WorkerDoorKind::kHere);
  /// Binds a stream, by its first message, to its task; an earlier stream of the same worker gets
  /// no more commands. FAILED_PRECONDITION/VERSION_SKEW for a version that is not spoken here: the
  /// worker stops.
  Status connect(const v1::WorkerReport& first, std::shared_ptr<CommandSink> sink,
                 WorkerDoorKind door = WorkerDoorKind::kHere);
  /// That stream has ended.
  void disconnect(const std::string& task, const CommandSink* sink);
  /// A report of a connected task.
  void report(const std::string& task, const v1::WorkerReport& report, Done<void> done);
  /// Exchanges the secret of a task from elsewhere for its credential (worker_service.proto).
  /// `done` on any thread. PERMISSION_DENIED/ENROLMENT_SPENT, FAILED_PRECONDITION/VERSION_SKEW.
  void enrol(const v1::EnrolRequest& request, Done<void> done);
  /// The files of an enrolled task. Workers of other nodes than the first write none.
  Result<FileGrant> grant(const std::string& task, const std::string& nonce,
                          FileUse use = FileUse::kRead);
  /// Where the workers of a task's nodes find each other. INVALID_ARGUMENT/FIELD_INVALID.
  Result<v1::RendezvousResponse> meet(const v1::RendezvousRequest& request);
  /// What the first worker of a task from elsewhere has measured (TaskOwner::to_measure).
  Result<v1::SendRatesResponse> take_rates(const v1::SendRatesRequest& request);
  /// Whether the task goes on with this credential.
  Status admit(const std::string& task, const std::string& nonce);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;  // also held by the answers of reports on their way
};

}  // namespace trainyard::server
