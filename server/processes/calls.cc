#include <spdlog/spdlog.h>

#include <algorithm>

#include "server/config/log.h"
#include "server/processes/supervisor_impl.h"
#include "server/protocol/versions.h"
#include "src/base/check.h"
#include "src/base/hmac.h"
#include "src/base/sha256.h"
#include "src/base/text.h"

namespace trainyard::server {
namespace {

constexpr size_t kNonceBytes = 32;
constexpr size_t kIdBytes = 8;

v1::WorkerCommand stop_command(const std::string& reason) {
  v1::WorkerCommand command;
  command.mutable_stop()->set_reason(reason);
  return command;
}

}  // namespace

Error fenced_task(const std::string& task) {
  return make_error(ErrorCode::kAborted, "ATTEMPT_FENCED",
                    "task " + quoted_value(task) + " is not running; exit");
}

Error version_skew(Task& task, const std::string& version, const std::string& protocols) {
  task.version_skew = true;
  Error e = make_error(ErrorCode::kFailedPrecondition, "VERSION_SKEW",
                       "the worker is version " + quoted_value(version) + " and speaks protocol " +
                           protocols + ", the daemon is " + TRAINYARD_VERSION + " and speaks " +
                           kProtocols.text());
  e.metadata = {{"worker", version}, {"daemon", TRAINYARD_VERSION}};
  return e;
}

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
  // One of its threads may still own the last TaskHold, and with it impl_.
  impl_->background.stop();
}

void Supervisor::in_background(std::function<void()> work) {
  impl_->in_background(std::move(work));
}

std::string Supervisor::make_nonce() { return random_hex(kNonceBytes); }

std::string Supervisor::Impl::add(std::shared_ptr<Task> task) {
  std::string id = task->id;
  {
    const MutexLock lock(mu);
    const bool is_new = tasks.emplace(id, task).second;
    TRAINYARD_CHECK(is_new, "task " + id + " is started twice");
    to_begin.push_back(std::move(task));
  }
  wake_up();
  return id;
}

std::string Supervisor::start(NewTask fresh) {
  auto task = std::make_shared<Task>();
  task->id = fresh.id.empty() ? random_hex(kIdBytes) : std::move(fresh.id);
  task->kind = std::move(fresh.kind);
  task->outlives = fresh.outlives && impl_->options.unattended_ms > 0;
  task->gpus = std::move(fresh.gpus);
  task->nonce = std::move(fresh.nonce);
  task->sandbox = std::move(fresh.sandbox);
  task->owner = std::move(fresh.owner);
  if (fresh.time_max_ms > 0) task->late_us = impl_->clock.steady_us() + fresh.time_max_ms * 1000;
  {
    const MutexLock lock(task->mu);
    task->nonce_digest = sha256_hex(task->nonce);
  }
  return impl_->add(std::move(task));
}

void Supervisor::adopt(AdoptedTask known) {
  auto task = std::make_shared<Task>();
  task->id = std::move(known.id);
  task->kind = std::move(known.kind);
  task->outlives = true;  // it has outlived a daemon already
  task->owner = std::move(known.owner);
  task->adopted = true;
  task->adopted_pid = known.pid;
  task->adopted_start_time = known.start_time;
  {
    const MutexLock lock(task->mu);
    task->attached = true;  // otherwise it may still attach
    task->nonce_digest = std::move(known.nonce_digest);
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
    // A remote task that has not enrolled has nothing to save.
    const bool idle = task->is_remote && task->nonce_digest.empty();
    task->stop_term_us = std::min(task->stop_term_us, term_us);
    task->stop_kill_us = std::min(task->stop_kill_us, idle ? now : now + grace_us);
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
    for (const auto& [id, task] : impl_->tasks) {
      if (!task->is_remote) ids.push_back(id);
    }
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
  return impl_->idle.wait_for(
      lock, std::chrono::milliseconds(timeout_ms), [this]() TRAINYARD_REQUIRES(impl_->mu) {
        return std::ranges::all_of(impl_->tasks, [](const auto& e) { return e.second->is_remote; });
      });
}

int Supervisor::task_count() const {
  const MutexLock lock(impl_->mu);
  return static_cast<int>(impl_->tasks.size());
}

Result<std::shared_ptr<Task>> Supervisor::Impl::find_proven(const std::string& id,
                                                            const std::string& nonce,
                                                            WorkerEndpointKind endpoint) {
  std::shared_ptr<Task> task = find(id);
  if (!task || task->is_remote != (endpoint == WorkerEndpointKind::kRemote)) return fenced_task(id);
  const std::string digest = sha256_hex(nonce);
  const MutexLock lock(task->mu);
  if (task->over || !equal_in_constant_time(digest, task->nonce_digest)) return fenced_task(id);
  return task;
}

Result<v1::Assignment> Supervisor::attach(const v1::AttachRequest& request,
                                          WorkerEndpointKind endpoint) {
  ASSIGN_OR_RETURN(const Impl::ProvenRank proven,
                   impl_->find_rank(request.task(), request.nonce(), endpoint));
  const std::shared_ptr<Task>& task = proven.task;
  const ProtocolRange spoken = protocols_of(request);
  const std::optional<int32_t> protocol = agree(kProtocols, spoken);
  if (!protocol) return version_skew(*task, request.version(), spoken.text());
  if (proven.rank == 0) task->heard_us = impl_->clock.steady_us();
  ASSIGN_OR_RETURN(v1::Assignment assignment, task->owner->assignment());
  assignment.set_heartbeat_interval_ms(impl_->options.heartbeat_ms);
  assignment.set_protocol(*protocol);
  if (task->is_remote) {
    assignment.set_unattended_ms(task->lease_us / 1000);
  } else if (task->outlives) {
    assignment.set_unattended_ms(impl_->options.unattended_ms);
  }
  const MutexLock lock(task->mu);
  if (task->over) return fenced_task(request.task());
  if (proven.rank == 0) task->attached = true;
  return assignment;
}

Status Supervisor::connect(const v1::WorkerReport& first, std::shared_ptr<CommandSink> sink,
                           WorkerEndpointKind endpoint) {
  const std::string& id = first.task();
  ASSIGN_OR_RETURN(const std::shared_ptr<Task> task,
                   impl_->find_proven(id, first.nonce(), endpoint));
  if (!kProtocols.contains(first.protocol())) {
    task->version_skew = true;
    return make_error(ErrorCode::kFailedPrecondition, "VERSION_SKEW",
                      "the worker speaks protocol " + std::to_string(first.protocol()) +
                          ", the daemon " + kProtocols.text());
  }
  std::optional<std::string> stop;
  {
    const MutexLock lock(task->mu);
    if (!task->attached || task->over) return fenced_task(id);
    task->sink = sink;
    stop = task->stop;
  }
  task->connected = true;
  task->heard_us = impl_->clock.steady_us();
  if (stop) sink->send(stop_command(*stop));
  return {};
}

void Supervisor::disconnect(const std::string& id, const CommandSink* sink) {
  const std::shared_ptr<Task> task = impl_->find(id);
  if (!task) return;
  {
    const MutexLock lock(task->mu);
    if (task->sink.get() != sink) return;  // a newer stream has taken its place
    task->sink.reset();
  }
  if (task->is_remote) impl_->wake_up();
}

void Supervisor::report(const std::string& id, const v1::WorkerReport& report, Done<void> done) {
  const std::shared_ptr<Task> task = impl_->find(id);
  if (!task) return done(fenced_task(id));
  task->heard_us = impl_->clock.steady_us();
  if (report.has_heartbeat() && impl_->is_stalled(report.heartbeat()) && task->stalled_ms == 0) {
    task->stalled_ms = report.heartbeat().idle_ms();
    impl_->wake_up();
  }
  if (!report.has_outcome()) {
    // After a worker's outcome its heartbeats need not be stored.
    if (report.has_heartbeat() && task->outcome_received) return done({});
    return task->owner->report(report, std::move(done));
  }
  task->outcome_received = true;
  task->owner->report(report, [impl = impl_, task, done = std::move(done)](Status taken) {
    if (taken.ok()) {
      task->outcome_us = impl->clock.steady_us();
      // Request the rates before the outcome is acknowledged, so that the worker does not end
      // before.
      if (task->is_remote) impl->ask_for_rates(*task);
      task->outcome_taken = true;
      if (task->is_remote) impl->wake_up();
    } else {
      task->outcome_received = false;
    }
    done(std::move(taken));
  });
}

}  // namespace trainyard::server
