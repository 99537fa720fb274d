// server/processes/supervisor_impl.h: the state that the parts of the supervisor share: its thread
// (supervisor.cc), remote tasks (remote_tasks.cc), and the functions for other threads (calls.cc).
#pragma once

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "server/processes/executor.h"
#include "server/processes/supervisor.h"
#include "server/processes/task.h"
#include "src/base/mutex.h"

namespace trainyard::server {

inline constexpr int kBackgroundThreads = 2;  // a large model's digest must not delay other ends
inline constexpr size_t kBackgroundMax = 1024;

/// Returns the error for a worker that this daemon does not know, or no longer knows.
Error fenced_task(const std::string& task);
/// Returns the error and sets task.version_skew.
Error version_skew(Task& task, const std::string& version, const std::string& protocols);

/// All functions run on the supervisor's thread unless their comment says otherwise.
struct Supervisor::Impl : std::enable_shared_from_this<Supervisor::Impl> {
  Impl(SupervisorOptions o, const Clock& c) : options(std::move(o)), clock(c) {
    epoll.reset(::epoll_create1(EPOLL_CLOEXEC));
    wake.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    TRAINYARD_CHECK(epoll && wake, "epoll_create1 or eventfd failed");
    watch_fd(wake.get(), nullptr);
    if (options.adopt_orphans) (void)::prctl(PR_SET_CHILD_SUBREAPER, 1);
  }

  void watch_fd(int fd, Task* task) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.ptr = task;
    TRAINYARD_CHECK(::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd, &event) == 0, "epoll_ctl failed");
  }

  void wake_up() {
    const uint64_t one = 1;
    (void)!::write(wake.get(), &one, sizeof one);
  }

  std::shared_ptr<Task> find(const std::string& id) {
    const MutexLock lock(mu);
    const auto it = tasks.find(id);
    return it == tasks.end() ? nullptr : it->second;
  }

  /// Returns a variable in the environment of a worker, and thus of every process that it starts.
  /// It contains the task and the inode of the log folder, because a state folder that was restored
  /// from a backup has the same jobs.
  std::string tag_of(const std::string& task) const {
    struct stat folder {};
    (void)::stat(options.log_dir.c_str(), &folder);
    return "TRAINYARD_TASK=" + task + "@" + std::to_string(folder.st_dev) + ":" +
           std::to_string(folder.st_ino);
  }

  bool is_stalled(const v1::WorkerReport::Heartbeat& beat) const {
    // The worker's numbers are not trusted, so this must not overflow.
    return options.stall_ms > 0 && beat.idle_ms() >= options.stall_ms &&
           beat.idle_ms() / kStallFactor >= beat.usual_ms();
  }

  /// Returns the time at which the worker counts as silent; kNever for a worker without its nonce,
  /// which waits for the daemon.
  int64_t silent_at_us(const Task& task) const {
    return task.has_nonce ? task.heard_us.load() + options.silence_ms * 1000 : kNever;
  }

  /// May be called on any thread.
  void in_background(std::function<void()> work) {
    if (!background.post(work)) work();
  }
  /// May be called on any thread. Returns the task with this ID and credential if the call arrived
  /// at the right endpoint; else ABORTED/ATTEMPT_FENCED.
  Result<std::shared_ptr<Task>> find_proven(const std::string& id, const std::string& nonce,
                                            WorkerEndpointKind endpoint);
  struct ProvenRank {
    std::shared_ptr<Task> task;
    int64_t rank = 0;
  };
  /// Returns the task with this ID and the rank of its worker with this credential, on any node.
  /// Else returns the error of find_proven().
  Result<ProvenRank> find_rank(const std::string& id, const std::string& nonce,
                               WorkerEndpointKind endpoint);

  void run();
  void begin(Task& task);
  void spawn(Task& task);
  void send_nonces();
  void adopt(Task& task);
  void watch(Task& task);
  void release_tasks(std::vector<std::shared_ptr<Task>>& mine);
  std::string add(std::shared_ptr<Task> task);
  void step_ladder(Task& task, int64_t now);
  void reap(Task& task, const std::vector<std::shared_ptr<Task>>& mine);
  void search_and_finish(Task& task, TaskEnd end);
  void finish(Task& task, TaskEnd end);
  void forget(const Task& task);
  /// Does the work that is due for a remote task; returns when to call this again.
  int64_t watch_remote(Task& task, int64_t now);
  /// May be called on any thread, when the outcome is durable and not yet acknowledged. Requests a
  /// measurement if the owner wants one.
  static void ask_for_rates(Task& task);
  void withdraw(Task& task, const std::string& why);
  void end_remote(Task& task, TaskEnd end);

  const SupervisorOptions options;
  const Clock& clock;
  UniqueFd epoll;
  UniqueFd wake;
  Executor background{kBackgroundThreads, kBackgroundMax};

  Mutex mu;
  CondVar idle;
  std::unordered_map<std::string, std::shared_ptr<Task>> tasks TRAINYARD_GUARDED_BY(mu);
  std::vector<std::shared_ptr<Task>> to_begin TRAINYARD_GUARDED_BY(mu);
  std::vector<std::pair<std::shared_ptr<Task>, Status>> recorded TRAINYARD_GUARDED_BY(mu);
  bool kill_all TRAINYARD_GUARDED_BY(mu) = false;
  bool releasing TRAINYARD_GUARDED_BY(mu) = false;
  bool stopping TRAINYARD_GUARDED_BY(mu) = false;
  std::jthread thread;
};

}  // namespace trainyard::server
