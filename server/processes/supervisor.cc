#include "server/processes/supervisor.h"

#include <signal.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <vector>

#include "server/config/log.h"
#include "server/processes/supervisor_impl.h"

namespace trainyard::server {
namespace {

std::vector<pid_t> pids_of(const std::vector<std::shared_ptr<Task>>& tasks) {
  std::vector<pid_t> pids;
  for (const std::shared_ptr<Task>& task : tasks) {
    if (task->process) pids.push_back(task->process->pid());
  }
  return pids;
}

/// Returns why a required sandbox is not possible for the task.
std::optional<Error> refused_sandbox(const SupervisorOptions& options, const Task& task) {
  if (options.sandbox != SandboxMode::kRequired) return std::nullopt;
  std::string why = options.sandbox_missing;
  if (task.sandbox.profile() == v1::WorkerSandbox::NONE) {
    why = "tasks on GPUs run without a sandbox";
  }
  if (why.empty()) return std::nullopt;
  return make_error(ErrorCode::kFailedPrecondition, "SANDBOX_UNAVAILABLE",
                    "the setting sandbox is required, but " + why);
}

/// Returns the text that the worker reads from its standard input.
std::string input_of(const SupervisorOptions& options, const Task& task) {
  std::string text = task.nonce + "\n";
  if (options.sandbox == SandboxMode::kOff) return text;
  v1::WorkerSandbox sandbox = task.sandbox;
  sandbox.set_required(options.sandbox == SandboxMode::kRequired);
  return text + sandbox.SerializeAsString();
}

}  // namespace

void Supervisor::Impl::run() {
  // Local tasks that run; keeps them alive for epoll's pointers.
  std::vector<std::shared_ptr<Task>> mine;
  std::vector<std::shared_ptr<Task>> remote;  // remote tasks that run
  for (;;) {
    std::vector<std::shared_ptr<Task>> fresh;
    bool kill_now = false;
    bool release_now = false;
    {
      const MutexLock lock(mu);
      fresh.swap(to_begin);
      kill_now = kill_all;
      release_now = releasing;
      if (stopping) std::erase_if(tasks, [](const auto& entry) { return entry.second->is_remote; });
      if (stopping && tasks.empty()) return;
    }
    for (const std::shared_ptr<Task>& task : fresh) {
      if (release_now && task->outlives) continue;
      begin(*task);
      if (task->process) mine.push_back(task);
      if (task->is_remote) remote.push_back(task);
    }
    send_nonces();
    if (release_now) {
      release_tasks(mine);
      remote.clear();
    }
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
    for (const std::shared_ptr<Task>& task : remote) {
      next = std::min(next, watch_remote(*task, now));
    }
    std::erase_if(remote, [](const std::shared_ptr<Task>& task) { return task->has_remote_end; });
    // One millisecond longer, so that the deadline has certainly passed.
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
  if (task.is_remote) return;
  if (task.adopted) {
    adopt(task);
  } else {
    spawn(task);
  }
}

void Supervisor::Impl::spawn(Task& task) {
  if (std::optional<Error> refused = refused_sandbox(options, task)) {
    TaskEnd end;
    end.start_error = *std::move(refused);
    finish(task, std::move(end));
    return;
  }
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
  const bool restricted = options.sandbox != SandboxMode::kOff;
  const auto profile = restricted ? task.sandbox.profile() : v1::WorkerSandbox::NONE;
  spdlog::info("event=worker_started task={} {} pid={} sandbox={}", task.id, kv("kind", task.kind),
               task.process->pid(), v1::WorkerSandbox::Profile_Name(profile));
  task.owner->spawned(task.process->pid(), task.process->start_time(),
                      [impl = shared_from_this(), task = task.shared_from_this()](Status s) {
                        {
                          const MutexLock lock(impl->mu);
                          impl->recorded.emplace_back(task, std::move(s));
                        }
                        impl->wake_up();
                      });
}

void Supervisor::Impl::send_nonces() {
  std::vector<std::pair<std::shared_ptr<Task>, Status>> answers;
  {
    const MutexLock lock(mu);
    answers.swap(recorded);
  }
  for (auto& [task, status] : answers) {
    if (!task->process) continue;  // it has ended in the meantime
    task->has_nonce = true;
    task->heard_us = clock.steady_us();
    if (status.ok()) status = task->process->write_stdin(input_of(options, *task));
    if (status.ok()) continue;
    // Without its nonce the worker can do nothing. Its end is handled like any other.
    spdlog::warn("event=worker_not_recorded task={} {}", task->id,
                 kv("message", status.error().message));
    task->process->signal_group(SIGKILL);
  }
}

void Supervisor::Impl::adopt(Task& task) {
  task.has_nonce = true;
  task.process = Process::adopt(task.adopted_pid, task.adopted_start_time, tag_of(task.id));
  if (!task.process) {
    spdlog::info("event=worker_exited task={} {} pid={}", task.id, kv("kind", task.kind),
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

// Removes the tasks that are left to the next daemon. release() waits for the others: a process
// that is not recorded yet would be lost, and one that is ending is handled by this daemon.
void Supervisor::Impl::release_tasks(std::vector<std::shared_ptr<Task>>& mine) {
  const auto goes = [](const Task& task) {
    return task.outlives && (task.is_remote || (task.process ? task.has_nonce : !task.begun));
  };
  std::erase_if(mine, [&](const std::shared_ptr<Task>& task) {
    if (!goes(*task)) return false;
    spdlog::info("event=worker_left_unattended task={} {} pid={}", task->id, kv("kind", task->kind),
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
    spdlog::warn("event=worker_killed task={} pid={}", task.id, task.process->pid());
    task.process->signal_group(SIGKILL);
    task.kill_at_us = kNever;  // the process ends now, and the pidfd reports it
    return;
  }
  int64_t kill_at = kNever;
  {
    const MutexLock lock(task.mu);
    if (now >= task.stop_term_us) kill_at = task.stop_kill_us;
  }
  if (kill_at == kNever && now >= silent_at_us(task)) {
    spdlog::warn("event=worker_not_responding task={} pid={} silence_ms={}", task.id,
                 task.process->pid(), options.silence_ms);
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
  // At the end of this function `process` closes the pidfd and the pipe, which removes them from
  // epoll.
  const Process process = std::move(*task.process);
  task.process.reset();
  // Kill the processes that the worker has left behind, in its group or elsewhere. If it was not a
  // child of this process, its group's number may have been reused.
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

/// Searches for processes that the task has left behind, on a background thread, because a machine
/// may have many processes.
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
    spdlog::error("event=task_callback_fault task={} {}", task.id, kv("what", e.what()));
  }
}

void Supervisor::Impl::forget(const Task& task) {
  {
    const MutexLock lock(mu);
    tasks.erase(task.id);
    idle.notify_all();
  }
  wake_up();  // the thread may be waiting for the last task
}

}  // namespace trainyard::server
