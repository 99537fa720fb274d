#include "server/serving/warm_workers.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <limits>
#include <map>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "proto/convert/run.h"
#include "server/processes/one_shot_runner.h"
#include "server/processes/worker_sandbox.h"
#include "server/serving/call_queue.h"
#include "src/base/check.h"
#include "src/base/mutex.h"

namespace trainyard::server {
namespace {

constexpr int64_t kNotDue = std::numeric_limits<int64_t>::max();
/// How long predictions of a model wait for a batch that is being computed before a second worker
/// takes them, so that small calls do not wait long behind a large one. The longer time applies
/// while the worker still loads the model.
constexpr int64_t kSecondWorkerUs = 500'000, kSecondWorkerLoadUs = 5'000'000;
constexpr int64_t kMemoryBytesMax = int64_t{1} << 46;  // limit for a worker's reported memory

using Kind = CallKind;

Error cancelled_error() {
  return make_error(ErrorCode::kCancelled, "CANCELLED", "the caller has disconnected");
}

struct Worker {
  std::string task;  // empty until the supervisor has named it
  WarmModel model;
  std::string dataset;         // the folder of the only dataset that it may read; empty: none
  Kind kind = Kind::kPredict;  // the kind of its calls
  std::vector<Call> calls;     // sent to it and not yet answered
  bool busy = true;            // counted in `running` of its CallQueue
  bool answered = false;       // has answered at least one call
  bool ending = false;
  bool outdated = false;  // ends when it is idle
  int64_t deadline_us = kNotDue;
  int64_t idle_since_us = 0;
  int64_t memory_bytes = 0;

  bool idle() const { return !busy && !ending && !task.empty(); }
};

/// Returns the folder of the dataset that the calls read; empty if they read none.
std::string dataset_of(const std::vector<Call>& calls) {
  return calls.front().message.evaluate().dataset_dir();
}

v1::ServeCalls to_message(const std::vector<Call>& calls) {
  v1::ServeCalls message;
  for (const Call& call : calls) {
    v1::ServeCall& to = *message.add_calls();
    to = call.message;
    to.set_number(call.number);
  }
  return message;
}

/// Actions to run after the mutex is released. Commands, which let workers compute, run before
/// answers.
struct Effects {
  std::vector<std::function<void()>> commands, answers;

  bool empty() const { return commands.empty() && answers.empty(); }
  void run() const {
    for (const auto& command : commands) command();
    for (const auto& answer : answers) answer();
  }
};

void answer(Call call, Result<v1::Outcome> outcome, Effects& effects) {
  effects.answers.emplace_back(
      [done = std::move(call.done), outcome = std::move(outcome)]() mutable {
        done(std::move(outcome));
      });
}

}  // namespace

struct WarmWorkers::Impl : std::enable_shared_from_this<WarmWorkers::Impl> {
  Impl(Supervisor& s, WarmOptions o, std::array<CallLimits, kKinds> l, const Clock& c)
      : supervisor(s), options(std::move(o)), limits(std::move(l)), clock(c) {}

  class Task;

  CallQueue& line_of(Kind kind) TRAINYARD_REQUIRES(mu) { return lines[static_cast<size_t>(kind)]; }
  const CallLimits& limits_of(Kind kind) const { return limits[static_cast<size_t>(kind)]; }

  /// Runs `change` under the mutex, then starts calls and ends workers as far as that makes it
  /// possible or necessary.
  void apply(const std::function<void(Effects&)>& change) {
    Effects effects;
    {
      const MutexLock lock(mu);
      change(effects);
      settle(effects);
    }
    effects.run();
  }

  void enqueue(Call call, bool first) TRAINYARD_REQUIRES(mu) {
    call.since_us = clock.steady_us();
    wake_at(call.since_us +
            std::min(kSecondWorkerUs, limits_of(call.kind).waiting_max_ms() * 1000));
    CallQueue& line = line_of(call.kind);
    line.put(std::move(call), first);
  }

  // ---- From queues to workers ----

  void settle(Effects& effects) TRAINYARD_REQUIRES(mu) {
    if (!draining) {
      for (size_t kind = 0; kind < kKinds; ++kind) start_calls(static_cast<Kind>(kind), effects);
    }
    trim(effects);
  }

  void start_calls(Kind kind, Effects& effects) TRAINYARD_REQUIRES(mu) {
    CallQueue& line = line_of(kind);
    const int64_t now = clock.steady_us();
    for (size_t passed = 0;
         passed < line.turns.size() && line.running < limits_of(kind).running_max;) {
      const std::string model = line.turns.front();
      line.turns.pop_front();
      line.turns.push_back(model);
      ModelQueue& queue = line.queues.at(model);
      if (kind == Kind::kPredict && waits_for_batch(queue, now)) {
        ++passed;
        continue;
      }
      passed = 0;
      give(line.take_batch(queue, limits_of(kind)), now, effects);
      line.drop_if_empty(model);
    }
  }

  /// Returns whether to wait for the batch that is being computed, so that the next batch becomes
  /// larger.
  bool waits_for_batch(const ModelQueue& queue, int64_t now) TRAINYARD_REQUIRES(mu) {
    const Call& oldest = queue.calls.front();
    return std::ranges::any_of(workers, [&](const auto& entry) {
      const Worker& w = entry.second;
      return w.busy && !w.ending && w.kind == oldest.kind &&
             w.model.job_uid == oldest.model.job_uid &&
             now < oldest.since_us + (w.answered ? kSecondWorkerUs : kSecondWorkerLoadUs);
    });
  }

  void give(std::vector<Call> calls, int64_t now, Effects& effects) TRAINYARD_REQUIRES(mu) {
    TRAINYARD_CHECK(!calls.empty(), "a worker is given no call");
    const Kind kind = calls.front().kind;
    const WarmModel model = calls.front().model;
    TRAINYARD_CHECK(line_of(kind).running < limits_of(kind).running_max,
                    std::to_string(line_of(kind).running) +
                        " workers already run calls of this kind, which is the maximum");
    ++line_of(kind).running;
    const std::string dataset = dataset_of(calls);
    auto found = workers.end();
    for (auto it = workers.begin(); it != workers.end(); ++it) {
      const Worker& w = it->second;
      if (w.idle() && w.model.job_uid == model.job_uid &&
          (dataset.empty() || w.dataset == dataset) &&
          (found == workers.end() || w.idle_since_us > found->second.idle_since_us)) {
        found = it;
      }
    }
    const bool fresh = found == workers.end();
    if (fresh) found = workers.try_emplace(++last_worker).first;
    Worker& worker = found->second;
    TRAINYARD_CHECK(worker.calls.empty(), "worker " + worker.task +
                                              " is given calls while it has " +
                                              std::to_string(worker.calls.size()));
    worker.kind = kind;
    worker.calls = std::move(calls);
    worker.busy = true;
    worker.deadline_us = now + limits_of(kind).time_max_ms * 1000;
    wake_at(worker.deadline_us);
    if (fresh) {
      worker.model = model;
      worker.dataset = dataset;
      worker.memory_bytes = model.size_bytes;  // until it reports more
      effects.commands.emplace_back([this, id = found->first] { start_worker(id); });
    } else {
      v1::WorkerCommand command;
      *command.mutable_serve() = to_message(worker.calls);
      effects.commands.emplace_back([this, task = worker.task, command = std::move(command)] {
        supervisor.send(task, command);
      });
    }
  }

  void start_worker(int64_t id);
  v1::WorkerSandbox sandbox_of(int64_t id);

  // ---- The end of workers ----

  void end_worker(Worker& worker, const char* why, Effects& effects) TRAINYARD_REQUIRES(mu) {
    if (std::exchange(worker.ending, true)) return;
    spdlog::debug("event=warm_worker_stopped task={} why={} memory_bytes={}", worker.task, why,
                  worker.memory_bytes);
    if (worker.task.empty()) return;  // start_worker() stops it
    effects.commands.emplace_back(
        [this, task = worker.task, why] { supervisor.stop(task, why, options.loss_grace_ms); });
  }

  /// Ends idle workers beyond the limits, the least recently used first.
  void trim(Effects& effects) TRAINYARD_REQUIRES(mu) {
    for (;;) {
      int64_t count = 0, bytes = 0;
      Worker* oldest = nullptr;
      for (auto& [id, w] : workers) {
        if (w.ending) continue;
        ++count;
        bytes += w.memory_bytes;
        if (w.idle() && (oldest == nullptr || w.idle_since_us < oldest->idle_since_us)) {
          oldest = &w;
        }
      }
      const bool fits = count <= options.workers_max && bytes <= options.bytes_max;
      if (fits || oldest == nullptr) return;
      end_worker(*oldest, "evicted", effects);
    }
  }

  void release(Worker& worker) TRAINYARD_REQUIRES(mu) {
    if (!std::exchange(worker.busy, false)) return;
    CallQueue& line = line_of(worker.kind);
    TRAINYARD_CHECK(line.running > 0, "a worker is released that had no call");
    --line.running;
    worker.deadline_us = kNotDue;
  }

  /// Queues calls again whose worker failed. Each is then computed alone, so that the call that
  /// caused the failure affects only itself.
  void ask_again(std::vector<Call> calls, Effects& effects) TRAINYARD_REQUIRES(mu) {
    for (auto call = calls.rbegin(); call != calls.rend(); ++call) {
      if (call->cancelled) {
        answer(std::move(*call), cancelled_error(), effects);
      } else if (draining) {
        answer(std::move(*call), stopping_error(), effects);
      } else {
        call->alone = true;
        enqueue(std::move(*call), true);
      }
    }
  }

  // ---- Reports of workers ----

  Result<v1::Assignment> assignment(int64_t id) {
    const MutexLock lock(mu);
    const auto it = workers.find(id);
    if (it == workers.end() || it->second.ending) {
      return make_error(ErrorCode::kAborted, "ATTEMPT_FENCED", "it is not needed any more; exit");
    }
    Worker& worker = it->second;
    v1::Assignment assignment;
    v1::ServeTask& task = *assignment.mutable_serve();
    task.set_model_dir(options.paths.model(worker.model.job_uid).string());
    task.set_threads(options.threads);
    *task.mutable_first() = to_message(worker.calls);
    return assignment;
  }

  /// Called when the worker has sent its outcome; it answers no more calls.
  void finished(int64_t id) {
    const MutexLock lock(mu);
    const auto it = workers.find(id);
    if (it != workers.end()) it->second.ending = true;
  }

  void generated(int64_t id, const v1::GenerateResponse& text) {
    TextHandler on_text;
    {
      const MutexLock lock(mu);
      const auto it = workers.find(id);
      if (it == workers.end() || it->second.calls.empty()) return;
      it->second.calls.front().text_given = true;
      on_text = it->second.calls.front().on_text;
    }
    if (on_text) on_text(text);
  }

  void answered(int64_t id, const v1::ServeAnswers& answers) {
    apply([&](Effects& effects) TRAINYARD_REQUIRES(mu) {
      const auto it = workers.find(id);
      if (it == workers.end()) return;
      Worker& worker = it->second;
      worker.answered = true;
      worker.memory_bytes =
          std::clamp(answers.memory_bytes(), worker.model.size_bytes, kMemoryBytesMax);
      for (const v1::ServeAnswer& given : answers.answers()) {
        const auto call = std::ranges::find(worker.calls, given.number(), &Call::number);
        if (call == worker.calls.end()) continue;
        if (given.outcome().kind() == v1::Outcome::SUCCEEDED) {
          answer(std::move(*call), given.outcome(), effects);
        } else {
          Error error = to_error(given.outcome());
          error.message = options.paths.hide(error.message);
          answer(std::move(*call), std::move(error), effects);
        }
        worker.calls.erase(call);
      }
      if (!worker.calls.empty() || !worker.busy) return;
      release(worker);
      worker.idle_since_us = clock.steady_us();
      wake_at(worker.idle_since_us + options.idle_max_ms * 1000);
      if (worker.outdated || draining) end_worker(worker, "outdated", effects);
    });
  }

  void ended(int64_t id) {
    apply([&](Effects& effects) TRAINYARD_REQUIRES(mu) {
      const auto it = workers.find(id);
      if (it == workers.end()) return;
      release(it->second);
      std::vector<Call> again;
      for (Call& call : it->second.calls) {
        const bool may_go_on = call.cancelled || draining || (!call.lost && !call.text_given);
        call.lost = true;
        if (may_go_on) {
          again.push_back(std::move(call));
        } else {
          answer(std::move(call),
                 make_error(ErrorCode::kInternal, "WORKER_LOST",
                            "the worker ended without an answer; the server's log has details"),
                 effects);
        }
      }
      workers.erase(it);
      ask_again(std::move(again), effects);
    });
  }

  // ---- Time ----

  void wake_at(int64_t time_us) TRAINYARD_REQUIRES(mu) {
    if (time_us >= wakes_at_us) return;
    wakes_at_us = time_us;
    timer_changed.notify_all();
  }

  void run(const std::stop_token& stop);
  /// Does the work that is due, and calls wake_at() for later work.
  void tick(int64_t now, Effects& effects) TRAINYARD_REQUIRES(mu);

  Supervisor& supervisor;
  const WarmOptions options;
  const std::array<CallLimits, kKinds> limits;
  const Clock& clock;

  Mutex mu;
  std::array<CallQueue, kKinds> lines TRAINYARD_GUARDED_BY(mu);
  std::map<int64_t, Worker> workers TRAINYARD_GUARDED_BY(mu);
  CallNumber last_call TRAINYARD_GUARDED_BY(mu) = 0;
  int64_t last_worker TRAINYARD_GUARDED_BY(mu) = 0;
  bool draining TRAINYARD_GUARDED_BY(mu) = false;

  CondVar timer_changed;
  int64_t wakes_at_us TRAINYARD_GUARDED_BY(mu) = kNotDue;  // when the timer's thread wakes up
  std::jthread timer;
};

/// The owner of one worker's task in the supervisor.
class WarmWorkers::Impl::Task final : public TaskOwner {
 public:
  Task(std::shared_ptr<Impl> impl, int64_t id) : impl_(std::move(impl)), id_(id) {}

  Result<v1::Assignment> assignment() override { return impl_->assignment(id_); }
  void report(const v1::WorkerReport& report, Done<void> done) override {
    if (report.has_generated()) impl_->generated(id_, report.generated());
    if (report.has_answers()) impl_->answered(id_, report.answers());
    if (report.has_outcome()) impl_->finished(id_);
    done({});
  }
  void ended(const TaskEnd&, TaskHold /*hold*/) override { impl_->ended(id_); }

 private:
  const std::shared_ptr<Impl> impl_;
  const int64_t id_;
};

v1::WorkerSandbox WarmWorkers::Impl::sandbox_of(int64_t id) {
  v1::WorkerSandbox sandbox = computing_sandbox("devices/cpu");
  const MutexLock lock(mu);
  const auto it = workers.find(id);
  if (it == workers.end()) return sandbox;
  add_readable(sandbox, options.paths.model(it->second.model.job_uid));
  add_readable(sandbox, it->second.dataset);
  return sandbox;
}

void WarmWorkers::Impl::start_worker(int64_t id) {
  Supervisor::NewTask fresh;
  fresh.kind = "serve";
  fresh.sandbox = sandbox_of(id);
  fresh.owner = std::make_shared<Task>(shared_from_this(), id);
  const std::string task = supervisor.start(std::move(fresh));
  apply([&](Effects& effects) TRAINYARD_REQUIRES(mu) {
    const auto it = workers.find(id);
    if (it == workers.end()) return;  // it has ended already
    it->second.task = task;
    if (it->second.ending) {
      effects.commands.emplace_back(
          [this, task] { supervisor.stop(task, "cancel", options.loss_grace_ms); });
    }
  });
}

void WarmWorkers::Impl::tick(int64_t now, Effects& effects) {
  for (auto& [id, worker] : workers) {
    if (worker.idle()) {
      const int64_t end_us = worker.idle_since_us + options.idle_max_ms * 1000;
      if (end_us <= now) {
        end_worker(worker, "idle", effects);
      } else {
        wake_at(end_us);
      }
    } else if (worker.busy && !worker.ending) {
      if (worker.deadline_us > now) {
        wake_at(worker.deadline_us);
        continue;
      }
      std::vector<Call> calls = std::exchange(worker.calls, {});
      end_worker(worker, "late", effects);
      if (calls.size() == 1 && !calls[0].cancelled) {
        answer(std::move(calls[0]), limits_of(worker.kind).late, effects);
      } else {
        ask_again(std::move(calls), effects);
      }
    }
  }
  for (size_t kind = 0; kind < kKinds; ++kind) {
    CallQueue& line = lines[kind];
    const std::deque<std::string> models = line.turns;
    for (const std::string& model : models) {
      ModelQueue& queue = line.queues.at(model);
      for (auto call = queue.calls.begin(); call != queue.calls.end();) {
        const int64_t end_us = call->since_us + limits[kind].waiting_max_ms() * 1000;
        if (end_us > now) {
          for (const int64_t wait_us : {kSecondWorkerUs, kSecondWorkerLoadUs}) {
            if (call->since_us + wait_us > now) wake_at(call->since_us + wait_us);
          }
          wake_at(end_us);
          ++call;
          continue;
        }
        const auto at = call - queue.calls.begin();
        answer(line.take(queue, call), limits[kind].busy, effects);
        call = queue.calls.begin() + at;
      }
      line.drop_if_empty(model);
    }
  }
}

void WarmWorkers::Impl::run(const std::stop_token& stop) {
  MutexLock lock(mu);
  while (!stop.stop_requested()) {
    Effects effects;
    const int64_t now = clock.steady_us();
    wakes_at_us = kNotDue;
    tick(now, effects);
    settle(effects);
    if (!effects.empty()) {
      lock.unlock();
      effects.run();
      lock.lock();
      continue;
    }
    const int64_t planned = wakes_at_us;
    const auto changed = [&]() TRAINYARD_REQUIRES(mu) { return wakes_at_us < planned; };
    if (planned == kNotDue) {
      timer_changed.wait(lock, stop, changed);
    } else {  // one millisecond longer, so that the time has certainly come
      timer_changed.wait_until(
          lock, stop,
          std::chrono::steady_clock::now() + std::chrono::microseconds(planned - now + 1000),
          changed);
    }
  }
}

WarmWorkers::WarmWorkers(Supervisor& supervisor, WarmOptions options,
                         std::array<CallLimits, kKinds> limits, const Clock& clock)
    : impl_(std::make_shared<Impl>(supervisor, std::move(options), std::move(limits), clock)) {
  impl_->timer =
      std::jthread([impl = impl_.get()](const std::stop_token& stop) { impl->run(stop); });
}

WarmWorkers::~WarmWorkers() {
  drain();
  impl_->timer.request_stop();
  impl_->timer.join();
}

CallNumber WarmWorkers::submit(Kind kind, const WarmModel& model, v1::ServeCall message,
                               Done<v1::Outcome> done, TextHandler on_text) {
  Call call;
  call.kind = kind;
  call.model = model;
  call.message = std::move(message);
  call.bytes = static_cast<int64_t>(call.message.ByteSizeLong());
  call.done = std::move(done);
  call.on_text = std::move(on_text);
  CallNumber number = 0;
  Impl& impl = *impl_;
  impl.apply([&](Effects& effects) TRAINYARD_REQUIRES(impl.mu) {
    number = ++impl.last_call;
    call.number = number;
    if (impl.draining) {
      answer(std::move(call), stopping_error(), effects);
    } else if (!impl.line_of(kind).admits(call, impl.limits_of(kind))) {
      answer(std::move(call), impl.limits_of(kind).busy, effects);
    } else {
      impl.enqueue(std::move(call), false);
    }
  });
  return number;
}

void WarmWorkers::cancel(CallNumber number) {
  Impl& impl = *impl_;
  impl.apply([&](Effects& effects) TRAINYARD_REQUIRES(impl.mu) {
    for (CallQueue& line : impl.lines) {
      for (auto& [model, queue] : line.queues) {
        const auto at = std::ranges::find(queue.calls, number, &Call::number);
        if (at == queue.calls.end()) continue;
        answer(line.take(queue, at), cancelled_error(), effects);
        const std::string name = model;  // a copy: drop_if_empty() erases the key
        return line.drop_if_empty(name);
      }
    }
    for (auto& [id, worker] : impl.workers) {
      const auto at = std::ranges::find(worker.calls, number, &Call::number);
      if (at == worker.calls.end() || std::exchange(at->cancelled, true)) continue;
      worker.deadline_us =
          std::min(worker.deadline_us, impl.clock.steady_us() + impl.options.loss_grace_ms * 1000);
      impl.wake_at(worker.deadline_us);
      v1::WorkerCommand command;
      command.set_cancel_call(number);
      if (!worker.task.empty()) {
        effects.commands.emplace_back(
            [&impl, task = worker.task, command] { impl.supervisor.send(task, command); });
      }
    }
  });
}

void WarmWorkers::forget(const std::string& job_uid, const Error& error) {
  Impl& impl = *impl_;
  impl.apply([&](Effects& effects) TRAINYARD_REQUIRES(impl.mu) {
    for (CallQueue& line : impl.lines) {
      const auto it = line.queues.find(job_uid);
      if (it == line.queues.end()) continue;
      ModelQueue& queue = it->second;
      while (!queue.calls.empty()) {
        answer(line.take(queue, queue.calls.begin()), error, effects);
      }
      line.drop_if_empty(job_uid);
    }
    for (auto& [id, worker] : impl.workers) {
      if (worker.model.job_uid != job_uid) continue;
      worker.outdated = true;
      if (worker.idle()) impl.end_worker(worker, "deleted", effects);
    }
  });
}

void WarmWorkers::drain() {
  Impl& impl = *impl_;
  impl.apply([&](Effects& effects) TRAINYARD_REQUIRES(impl.mu) {
    impl.draining = true;
    for (CallQueue& line : impl.lines) {
      for (auto& [model, queue] : line.queues) {
        for (Call& call : queue.calls) answer(std::move(call), stopping_error(), effects);
      }
      line.clear();
    }
    for (auto& [id, worker] : impl.workers) {
      if (worker.idle()) impl.end_worker(worker, "drain", effects);
    }
  });
}

}  // namespace trainyard::server
