// Tasks without a process of ours: a placement starts them on another host and sees them end; here
// is what the daemon knows by their connection.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "server/config/log.h"
#include "server/protocol/enrolment.h"
#include "server/protocol/versions.h"
#include "server/supervisor/supervisor_impl.h"
#include "src/base/sha256.h"

namespace trainyard::server {
namespace {

// From an outcome to the end of a task whose stream does not close.
constexpr int64_t kAfterOutcomeUs = 30'000'000;

}  // namespace

// ---- The supervisor's thread ---------------------------------------------------------------

void Supervisor::Impl::withdraw(Task& task, const std::string& why) {
  if (std::exchange(task.withdrawn, true)) return;
  spdlog::info("event=worker_withdrawn task={} {} {}", task.id, kv("kind", task.kind),
               kv("why", why));
  in_background([task = task.shared_from_this(), why] {
    try {
      if (task->withdraw) task->withdraw(why);
    } catch (const std::exception& e) {
      spdlog::error("event=withdraw_fault task={} {}", task->id, kv("what", e.what()));
    }
  });
}

void Supervisor::Impl::end_elsewhere(Task& task, TaskEnd end) {
  task.ended_away = true;
  end.silent = task.silent;
  end.stalled_ms = task.stalled_ms;
  end.outcome_taken = task.outcome_taken;
  end.version_skew = end.version_skew || task.version_skew;
  spdlog::info("event=worker_ended_elsewhere task={} outcome={}", task.id, end.outcome_taken);
  finish(task, std::move(end));
}

int64_t Supervisor::Impl::watch_elsewhere(Task& task, int64_t now) {
  bool enrolled = false;
  bool stream_open = false;
  std::optional<TaskEnd> seen;
  std::optional<std::string> stop;
  int64_t stop_us = kNever;
  {
    const MutexLock lock(task.mu);
    enrolled = !task.nonce_digest.empty();
    stream_open = task.sink != nullptr;
    seen = std::exchange(task.seen_end, std::nullopt);
    stop = task.stop;
    stop_us = task.stop_kill_us;
  }
  if (seen) {
    end_elsewhere(task, *std::move(seen));
    return kNever;
  }
  if (task.outcome_taken) {
    const int64_t end_us = task.outcome_us + kAfterOutcomeUs;
    if (stream_open && now < end_us) return end_us;
    TaskEnd end;
    end.exit.unknown = true;
    end_elsewhere(task, std::move(end));
    return kNever;
  }
  if (stop && now >= stop_us) withdraw(task, *stop);
  if (task.stalled_ms > 0) withdraw(task, "stalled");
  int64_t next = stop && !task.withdrawn ? stop_us : kNever;
  if (!enrolled) return next;
  const int64_t heard = task.heard_us;
  const int64_t silent_us = heard + options.silence_ms * 1000;
  if (now < silent_us) {
    task.told_silent = false;
    return std::min(next, silent_us);
  }
  if (!std::exchange(task.told_silent, true)) {
    spdlog::warn("event=worker_silent_elsewhere task={} silence_ms={} lease_ms={}", task.id,
                 options.silence_ms, task.lease_us / 1000);
  }
  if (now >= heard + task.lease_us) {
    task.silent = true;
    withdraw(task, "silent");
    return next;
  }
  return std::min(next, heard + task.lease_us);
}

// ---- What others call ----------------------------------------------------------------------

void Supervisor::expect(ElsewhereTask known) {
  auto task = std::make_shared<Task>();
  task->id = std::move(known.id);
  task->kind = std::move(known.kind);
  task->outlives = true;
  task->elsewhere = true;
  task->owner = std::move(known.owner);
  task->secret_digest = std::move(known.secret_digest);
  task->lease_us = known.lease_ms * 1000;
  task->withdraw = std::move(known.withdraw);
  task->heard_us = impl_->clock.steady_us();
  {
    const MutexLock lock(task->mu);
    task->attached = !known.nonce_digest.empty();  // or else it may do so yet
    task->nonce_digest = std::move(known.nonce_digest);
  }
  (void)impl_->add(std::move(task));
}

void Supervisor::ended_elsewhere(const std::string& id, TaskEnd end) {
  const std::shared_ptr<Task> task = impl_->find(id);
  if (!task || !task->elsewhere) return;
  {
    const MutexLock lock(task->mu);
    task->seen_end = std::move(end);
  }
  impl_->wake_up();
}

void Supervisor::enrol(const v1::EnrolRequest& request, Done<void> done) {
  const std::shared_ptr<Task> task = impl_->find(request.task());
  if (!task || !task->elsewhere ||
      !equal_in_constant_time(sha256_hex(request.secret()), task->secret_digest)) {
    return done(fenced_task(request.task()));
  }
  const ProtocolRange spoken{protocol_or_first(request.protocol_min()),
                             protocol_or_first(request.protocol_max())};
  if (const auto protocol = agree(kProtocols, spoken);
      !protocol || *protocol < kProtocolElsewhere) {
    return done(version_skew(*task, request.version(), spoken.text()));
  }
  if (!is_sha256_hex(request.key())) {
    return done(field_error("FIELD_INVALID", "key", "expected 64 lower-case hexadecimal digits"));
  }
  std::string digest = sha256_hex(enrolment_credential(request.secret(), request.key()));
  {
    const MutexLock lock(task->mu);
    if (task->over) return done(fenced_task(request.task()));
    if (task->nonce_digest == digest) return done({});  // the answer was lost
    if (!task->nonce_digest.empty() || (!task->enrolling.empty() && task->enrolling != digest)) {
      return done(make_error(ErrorCode::kPermissionDenied, "ENROLMENT_SPENT",
                             "task " + task->id +
                                 " already has a worker: its secret is good for "
                                 "one"));
    }
    task->enrolling = digest;
  }
  task->owner->enrolled(digest, [impl = impl_, task, digest, done = std::move(done)](Status s) {
    {
      const MutexLock lock(task->mu);
      if (s.ok()) task->nonce_digest = digest;
      task->enrolling.clear();
    }
    task->heard_us = impl->clock.steady_us();
    impl->wake_up();
    done(std::move(s));
  });
}

Result<FileGrant> Supervisor::grant(const std::string& id, const std::string& nonce) {
  ASSIGN_OR_RETURN(const std::shared_ptr<Task> task,
                   impl_->find_proven(id, nonce, WorkerDoorKind::kElsewhere));
  return task->owner->grant();
}

Status Supervisor::admit(const std::string& id, const std::string& nonce) {
  auto task = impl_->find_proven(id, nonce, WorkerDoorKind::kElsewhere);
  return task.ok() ? Status() : Status(std::move(task).error());
}

bool Supervisor::connected(const std::string& id) const {
  const std::shared_ptr<Task> task = impl_->find(id);
  if (!task) return false;
  const MutexLock lock(task->mu);
  return task->sink != nullptr;
}

std::optional<int64_t> Supervisor::silent_ms(const std::string& id) const {
  const std::shared_ptr<Task> task = impl_->find(id);
  if (!task || !task->elsewhere) return std::nullopt;
  {
    const MutexLock lock(task->mu);
    if (task->nonce_digest.empty()) return std::nullopt;
  }
  return std::max<int64_t>(0, impl_->clock.steady_us() - task->heard_us) / 1000;
}

bool Supervisor::silent_elsewhere(const std::string& id) const {
  return silent_ms(id).value_or(0) >= impl_->options.silence_ms;
}

}  // namespace trainyard::server
