#include "server/supervisor/supervisor.h"

#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <thread>
#include <unordered_map>
#include <vector>

#include "server/config/log.h"
#include "server/protocol/versions.h"
#include "server/supervisor/executor.h"
#include "server/supervisor/task.h"
#include "src/base/mutex.h"
#include "src/base/sha256.h"
#include "src/base/text.h"

namespace trainyard::server {
namespace {

constexpr int kBackgroundThreads = 2;  // a large model's digest must not hold up every other end
constexpr size_t kBackgroundMax = 1024;

std::string random_hex(size_t bytes) {
  std::array<unsigned char, 32> random{};
  TRAINYARD_CHECK(
      bytes <= random.size() && ::getrandom(random.data(), bytes, 0) == static_cast<ssize_t>(bytes),
      "getrandom failed");
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string text;
  for (size_t i = 0; i < bytes; ++i) {
    text += kHex[random[i] >> 4];
    text += kHex[random[i] & 15];
  }
  return text;
}

Error fenced(const std::string& task) {
  return make_error(ErrorCode::kAborted, "ATTEMPT_FENCED",
                    "task " + quoted_value(task) + " is not running; exit");
}

Error skew(Task& task, const v1::AttachRequest& request) {
  task.version_skew = true;
  Error e =
      make_error(ErrorCode::kFailedPrecondition, "VERSION_SKEW",
                 "the worker is version " + quoted_value(request.version()) +
                     " and speaks protocol " + protocols_of(request).text() + ", the daemon is " +
                     TRAINYARD_VERSION + " and speaks " + kProtocols.text());
  e.metadata = {{"worker", request.version()}, {"daemon", TRAINYARD_VERSION}};
  return e;
}

std::vector<pid_t> pids_of(const std::vector<std::shared_ptr<Task>>& tasks) {
  std::vector<pid_t> pids;
  for (const std::shared_ptr<Task>& task : tasks) {
    if (task->process) pids.push_back(task->process->pid());
  }
  return pids;
}

v1::WorkerCommand stop_command(const std::string& reason) {
  v1::WorkerCommand command;
  command.mutable_stop()->set_reason(reason);
  return command;
}

}  // namespace

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

  /// In the environment of a worker, and thus of everything that it starts. The state folder is
  /// part of it, by its inode: one that was restored from a backup has the same jobs.
  std::string tag_of(const std::string& task) const {
    struct stat folder {};
    (void)::stat(options.log_dir.c_str(), &folder);
    return "TRAINYARD_TASK=" + task + "@" + std::to_string(folder.st_dev) + ":" +
           std::to_string(folder.st_ino);
  }

  bool is_stalled(const v1::WorkerReport::Heartbeat& beat) const {
    // A worker's numbers are input like any other: no overflow.
    return options.stall_ms > 0 && beat.idle_ms() >= options.stall_ms &&
           beat.idle_ms() / kStallFactor >= beat.usual_ms();
  }

  /// The daemon is what a worker without its nonce waits for: that is no silence.
  int64_t silent_at_us(const Task& task) const {
    return task.has_nonce ? task.heard_us.load() + options.silence_ms * 1000 : kNever;
  }

  void in_background(std::function<void()> work) {
    if (!background.post(work)) work();
  }

  void run();
  void begin(Task& task);
  void spawn(Task& task);
  void hand_over_nonces();
  void adopt(Task& task);
  void watch(Task& task);
  void let_go(std::vector<std::shared_ptr<Task>>& mine);
  std::string add(std::shared_ptr<Task> task);
  void step_ladder(Task& task, int64_t now);
  void reap(Task& task, const std::vector<std::shared_ptr<Task>>& mine);
  void search_and_finish(Task& task, TaskEnd end);
  void finish(Task& task, TaskEnd end);
  void forget(const Task& task);

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

// ---- The supervisor's thread ---------------------------------------------------------------

void Supervisor::Impl::run() {
  std::vector<std::shared_ptr<Task>> mine;  // what runs; also keeps them alive for epoll's pointers
  for (;;) {
    std::vector<std::shared_ptr<Task>> fresh;
    bool kill_now = false;
    bool release_now = false;
    {
      const MutexLock lock(mu);
      fresh.swap(to_begin);
      kill_now = kill_all;
      release_now = releasing;
      if (stopping && tasks.empty()) return;
    }
    for (const std::shared_ptr<Task>& task : fresh) {
      if (release_now && task->outlives) continue;
      begin(*task);
      if (task->process) mine.push_back(task);
    }
    hand_over_nonces();
    if (release_now) let_go(mine);
    const int64_t now = clock.steady_us();
    int64_t next = kNever;
    for (const std::shared_ptr<Task>& task : mine) {
      if (kill_now) task->process->signal_group(SIGKILL);
      step_ladder(*task, now);
      next = std::min(next, task->kill_at_us);
      if (!task->terminated) {
        next = std::min({next, silent_at_us(*task), task->late_us});
        const MutexLock lock(task->mu);
        next = std::min(next, task->stop_term_us);
      }
    }
    // One millisecond more, so that the deadline has passed when we look again.
    const int timeout_ms =
        next == kNever ? -1
                       : static_cast<int>(std::clamp<int64_t>((next - now) / 1000 + 1, 1, 60'000));
    std::array<epoll_event, 32> events{};
    const int n = ::epoll_wait(epoll.get(), events.data(), events.size(), timeout_ms);
    for (int i = 0; i < n; ++i) {
      auto* task = static_cast<Task*>(events[static_cast<size_t>(i)].data.ptr);
      if (task == nullptr) {
        uint64_t count = 0;
        (void)!::read(wake.get(), &count, sizeof count);
      } else if (task->process) {
        if (task->output_open && !task->output->drain(task->process->output())) {
          (void)::epoll_ctl(epoll.get(), EPOLL_CTL_DEL, task->process->output(), nullptr);
          task->output_open = false;
        }
        reap(*task, mine);
      }
    }
    std::erase_if(mine, [](const std::shared_ptr<Task>& task) { return !task->process; });
    if (options.adopt_orphans) reap_orphans(pids_of(mine));
  }
}

void Supervisor::Impl::begin(Task& task) {
  task.begun = true;
  if (task.adopted) {
    adopt(task);
  } else {
    spawn(task);
  }
}

void Supervisor::Impl::spawn(Task& task) {
  SpawnRequest request;
  request.outlives = task.outlives;
  request.program = options.worker;
  request.arguments = {"--socket", options.socket.string(), "--task", task.id};
  request.environment = worker_environment(task.gpus);
  request.environment.push_back(tag_of(task.id));
  Result<Process> process = Process::spawn(request);
  if (!process.ok()) {
    TaskEnd end;
    end.start_error = process.error();
    finish(task, std::move(end));
    return;
  }
  task.process.emplace(std::move(process).value());
  watch(task);
  spdlog::info("event=worker_started task={} {} pid={}", task.id, kv("kind", task.kind),
               task.process->pid());
  task.owner->spawned(task.process->pid(), task.process->start_time(),
                      [impl = shared_from_this(), task = task.shared_from_this()](Status s) {
                        {
                          const MutexLock lock(impl->mu);
                          impl->recorded.emplace_back(task, std::move(s));
                        }
                        impl->wake_up();
                      });
}

void Supervisor::Impl::hand_over_nonces() {
  std::vector<std::pair<std::shared_ptr<Task>, Status>> answers;
  {
    const MutexLock lock(mu);
    answers.swap(recorded);
  }
  for (auto& [task, status] : answers) {
    if (!task->process) continue;  // it has ended meanwhile
    task->has_nonce = true;
    task->heard_us = clock.steady_us();
    if (status.ok()) status = task->process->write_stdin(task->nonce + "\n");
    if (status.ok()) continue;
    // Without its nonce it can do nothing; its end is handled like any other.
    spdlog::warn("event=worker_not_recorded task={} {}", task->id,
                 kv("message", status.error().message));
    task->process->signal_group(SIGKILL);
  }
}

void Supervisor::Impl::adopt(Task& task) {
  task.has_nonce = true;
  task.process = Process::adopt(task.adopted_pid, task.adopted_start_time, tag_of(task.id));
  if (!task.process) {
    spdlog::info("event=worker_gone task={} {} pid={}", task.id, kv("kind", task.kind),
                 task.adopted_pid);
    TaskEnd end;
    end.exit.unknown = true;
    end.lost_from_sight = true;
    return search_and_finish(task, std::move(end));
  }
  watch(task);
  spdlog::info("event=worker_adopted task={} {} pid={}", task.id, kv("kind", task.kind),
               task.process->pid());
}

void Supervisor::Impl::watch(Task& task) {
  task.output = std::make_unique<OutputLog>(options.log_dir / (task.id + ".log"));
  task.output_open = task.process->output() >= 0;
  task.heard_us = clock.steady_us();
  watch_fd(task.process->pidfd(), &task);
  if (task.output_open) watch_fd(task.process->output(), &task);
}

// A process that is not recorded yet would be lost, and what is ending is not the next daemon's:
// release() waits for these.
void Supervisor::Impl::let_go(std::vector<std::shared_ptr<Task>>& mine) {
  const auto goes = [](const Task& task) {
    return task.outlives && (task.process ? task.has_nonce : !task.begun);
  };
  std::erase_if(mine, [&](const std::shared_ptr<Task>& task) {
    if (!goes(*task)) return false;
    spdlog::info("event=worker_left task={} {} pid={}", task->id, kv("kind", task->kind),
                 task->process->pid());
    return true;
  });
  const MutexLock lock(mu);
  std::erase_if(tasks, [&](const auto& entry) { return goes(*entry.second); });
  idle.notify_all();
}

void Supervisor::Impl::step_ladder(Task& task, int64_t now) {
  if (task.terminated) {
    if (now < task.kill_at_us) return;
    spdlog::warn("event=worker_kill task={} pid={}", task.id, task.process->pid());
    task.process->signal_group(SIGKILL);
    task.kill_at_us = kNever;  // nothing survives it; the pidfd reports the end
    return;
  }
  int64_t kill_at = kNever;
  {
    const MutexLock lock(task.mu);
    if (now >= task.stop_term_us) kill_at = task.stop_kill_us;
  }
  if (kill_at == kNever && now >= silent_at_us(task)) {
    spdlog::warn("event=worker_silent task={} pid={} silence_ms={}", task.id, task.process->pid(),
                 options.silence_ms);
    task.silent = true;
    kill_at = now + options.kill_grace_ms * 1000;
  }
  if (kill_at == kNever && task.stalled_ms > 0) {
    spdlog::warn("event=worker_stalled task={} pid={} idle_ms={}", task.id, task.process->pid(),
                 task.stalled_ms.load());
    kill_at = now + options.kill_grace_ms * 1000;
  }
  if (kill_at == kNever && now >= task.late_us) {
    task.late = true;
    kill_at = now + options.kill_grace_ms * 1000;
  }
  if (kill_at == kNever) return;
  task.process->signal_group(SIGTERM);
  task.terminated = true;
  task.kill_at_us = kill_at;
}

void Supervisor::Impl::reap(Task& task, const std::vector<std::shared_ptr<Task>>& mine) {
  const std::optional<ExitStatus> exit = task.process->reap();
  if (!exit) return;
  // By its end the pidfd and the pipe are closed, which removes them from epoll.
  const Process process = std::move(*task.process);
  task.process.reset();
  // What it has started and left behind in its group, or elsewhere. The number of a group that is
  // not our child's may be another's by now.
  if (!exit->unknown) process.signal_group(SIGKILL);
  const bool comes_to_us = options.adopt_orphans && !exit->unknown;
  const bool searched = comes_to_us && end_tagged_children(tag_of(task.id), pids_of(mine));
  if (task.output_open) (void)task.output->drain(process.output());
  TaskEnd end;
  end.exit = *exit;
  end.silent = task.silent;
  end.stalled_ms = task.stalled_ms;
  end.late = task.late;
  end.outcome_taken = task.outcome_taken;
  end.version_skew = task.version_skew;
  end.lost_from_sight = task.adopted && !task.connected && !task.terminated;
  end.output_tail = task.output->tail();
  spdlog::info("event=worker_ended task={} pid={} {} outcome={} output_bytes={}", task.id,
               process.pid(), kv("exit", describe(*exit)), end.outcome_taken, task.output->bytes());
  if (searched) return finish(task, std::move(end));
  search_and_finish(task, std::move(end));
}

/// Looks for what the task has left behind beside this thread: a machine may have many processes.
void Supervisor::Impl::search_and_finish(Task& task, TaskEnd end) {
  in_background([this, task = task.shared_from_this(), end = std::move(end)] {
    end_tagged_anywhere(tag_of(task->id));
    finish(*task, end);
  });
}

void Supervisor::Impl::finish(Task& task, TaskEnd end) {
  {
    const MutexLock lock(task.mu);
    end.stop_asked = task.stop.has_value();
    end.attached = task.attached;
    task.sink.reset();
    task.over = true;
  }
  const auto forget_it = [impl = shared_from_this(), task = task.shared_from_this()](void*) {
    impl->forget(*task);
  };
  try {
    task.owner->ended(end, TaskHold(nullptr, forget_it));
  } catch (const std::exception& e) {
    spdlog::error("event=task_owner_fault task={} {}", task.id, kv("what", e.what()));
  }
}

void Supervisor::Impl::forget(const Task& task) {
  {
    const MutexLock lock(mu);
    tasks.erase(task.id);
    idle.notify_all();
  }
  wake_up();  // the thread may wait for the last one
}

// ---- What others call ----------------------------------------------------------------------

Supervisor::Supervisor(SupervisorOptions options, const Clock& clock)
    : impl_(std::make_shared<Impl>(std::move(options), clock)) {
  impl_->thread = std::jthread([impl = impl_.get()] { impl->run(); });
}

Supervisor::~Supervisor() {
  kill_all();
  {
    const MutexLock lock(impl_->mu);
    impl_->stopping = true;
  }
  impl_->wake_up();
  impl_->thread.join();
  impl_->background.stop();  // one of its threads may still hold the last end, and with it impl_
}

void Supervisor::in_background(std::function<void()> work) {
  impl_->in_background(std::move(work));
}

std::string Supervisor::make_nonce() { return random_hex(32); }

std::string Supervisor::Impl::add(std::shared_ptr<Task> task) {
  std::string id = task->id;
  {
    const MutexLock lock(mu);
    tasks.insert_or_assign(id, task);
    to_begin.push_back(std::move(task));
  }
  wake_up();
  return id;
}

std::string Supervisor::start(NewTask fresh) {
  auto task = std::make_shared<Task>();
  task->id = fresh.id.empty() ? random_hex(8) : std::move(fresh.id);
  task->kind = std::move(fresh.kind);
  task->outlives = fresh.outlives && impl_->options.unattended_ms > 0;
  task->gpus = std::move(fresh.gpus);
  task->nonce = std::move(fresh.nonce);
  task->nonce_digest = sha256_hex(task->nonce);
  task->owner = std::move(fresh.owner);
  if (fresh.time_max_ms > 0) task->late_us = impl_->clock.steady_us() + fresh.time_max_ms * 1000;
  return impl_->add(std::move(task));
}

void Supervisor::adopt(AdoptedTask known) {
  auto task = std::make_shared<Task>();
  task->id = std::move(known.id);
  task->kind = std::move(known.kind);
  task->outlives = true;  // it did already
  task->nonce_digest = std::move(known.nonce_digest);
  task->owner = std::move(known.owner);
  task->adopted = true;
  task->adopted_pid = known.pid;
  task->adopted_start_time = known.start_time;
  {
    const MutexLock lock(task->mu);
    task->attached = true;  // or else it may do so yet
  }
  (void)impl_->add(std::move(task));
}

void Supervisor::release() {
  MutexLock lock(impl_->mu);
  impl_->releasing = true;
  impl_->wake_up();
  impl_->idle.wait(lock, [this]() TRAINYARD_REQUIRES(impl_->mu) {
    return std::ranges::none_of(impl_->tasks, [](const auto& e) { return e.second->outlives; });
  });
}

void Supervisor::stop(const std::string& id, const std::string& reason, int64_t grace_ms) {
  const std::shared_ptr<Task> task = impl_->find(id);
  if (!task) return;
  const int64_t grace_us = (grace_ms > 0 ? grace_ms : impl_->options.stop_grace_ms) * 1000;
  const int64_t now = impl_->clock.steady_us();
  std::shared_ptr<CommandSink> sink;
  {
    const MutexLock lock(task->mu);
    if (!task->stop) sink = task->sink;
    task->stop = reason;
    // A worker that has not attached yet has nothing to save and only receives signals.
    const int64_t term_us = task->attached ? now + grace_us / 3 : now;
    task->stop_term_us = std::min(task->stop_term_us, term_us);
    task->stop_kill_us = std::min(task->stop_kill_us, now + grace_us);
  }
  if (sink) sink->send(stop_command(reason));
  impl_->wake_up();
}

void Supervisor::send(const std::string& id, const v1::WorkerCommand& command) {
  const std::shared_ptr<Task> task = impl_->find(id);
  if (!task) return;
  std::shared_ptr<CommandSink> sink;
  {
    const MutexLock lock(task->mu);
    sink = task->sink;
  }
  if (sink) sink->send(command);
}

void Supervisor::stop_all(const std::string& reason, int64_t grace_ms) {
  std::vector<std::string> ids;
  {
    const MutexLock lock(impl_->mu);
    for (const auto& [id, task] : impl_->tasks) ids.push_back(id);
  }
  for (const std::string& id : ids) stop(id, reason, grace_ms);
}

void Supervisor::kill_all() {
  {
    const MutexLock lock(impl_->mu);
    impl_->kill_all = true;
  }
  impl_->wake_up();
}

bool Supervisor::wait_idle(int64_t timeout_ms) {
  MutexLock lock(impl_->mu);
  return impl_->idle.wait_for(lock, std::chrono::milliseconds(timeout_ms),
                              [this]()
                                  TRAINYARD_REQUIRES(impl_->mu) { return impl_->tasks.empty(); });
}

int Supervisor::task_count() const {
  const MutexLock lock(impl_->mu);
  return static_cast<int>(impl_->tasks.size());
}

Result<v1::Assignment> Supervisor::attach(const v1::AttachRequest& request) {
  const std::shared_ptr<Task> task = impl_->find(request.task());
  if (!task || sha256_hex(request.nonce()) != task->nonce_digest) return fenced(request.task());
  const std::optional<int32_t> protocol = agree(kProtocols, protocols_of(request));
  if (!protocol) return skew(*task, request);
  task->heard_us = impl_->clock.steady_us();
  ASSIGN_OR_RETURN(v1::Assignment assignment, task->owner->assignment());
  if (assignment.has_serve() && *protocol < 2) return skew(*task, request);
  assignment.set_heartbeat_interval_ms(impl_->options.heartbeat_ms);
  assignment.set_protocol(*protocol);
  if (task->outlives) assignment.set_unattended_ms(impl_->options.unattended_ms);
  const MutexLock lock(task->mu);
  if (task->over) return fenced(request.task());
  task->attached = true;
  return assignment;
}

Status Supervisor::connect(const v1::WorkerReport& first, std::shared_ptr<CommandSink> sink) {
  const std::string& id = first.task();
  const std::shared_ptr<Task> task = impl_->find(id);
  if (!task || sha256_hex(first.nonce()) != task->nonce_digest) return fenced(id);
  if (const int32_t protocol = protocol_or_first(first.protocol());
      !kProtocols.contains(protocol)) {
    task->version_skew = true;
    return make_error(ErrorCode::kFailedPrecondition, "VERSION_SKEW",
                      "the worker speaks protocol " + std::to_string(protocol) + ", the daemon " +
                          kProtocols.text());
  }
  std::optional<std::string> stop;
  {
    const MutexLock lock(task->mu);
    if (!task->attached || task->over) return fenced(id);
    task->sink = sink;
    stop = task->stop;
  }
  task->connected = true;
  if (stop) sink->send(stop_command(*stop));
  return {};
}

void Supervisor::report(const std::string& id, const v1::WorkerReport& report, Done<void> done) {
  const std::shared_ptr<Task> task = impl_->find(id);
  if (!task) return done(fenced(id));
  task->heard_us = impl_->clock.steady_us();
  if (report.has_heartbeat() && impl_->is_stalled(report.heartbeat()) && task->stalled_ms == 0) {
    task->stalled_ms = report.heartbeat().idle_ms();
    impl_->wake_up();
  }
  if (!report.has_outcome()) return task->owner->report(report, std::move(done));
  task->owner->report(report, [task, done = std::move(done)](Status taken) {
    if (taken.ok()) task->outcome_taken = true;
    done(std::move(taken));
  });
}

}  // namespace trainyard::server
