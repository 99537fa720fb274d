// server/processes/remote_tasks.cc: remote tasks, whose processes are no children of this daemon. A
// placement starts them on another host and observes their end; this file handles their
// connections.
#include <arpa/inet.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <utility>

#include "server/config/log.h"
#include "server/processes/supervisor_impl.h"
#include "server/protocol/enrolment.h"
#include "server/protocol/versions.h"
#include "src/base/check.h"
#include "src/base/sha256.h"

namespace trainyard::server {
namespace {

// The time between an outcome and the end of its task if the worker's stream does not close.
constexpr int64_t kAfterOutcomeUs = 30'000'000;
constexpr int64_t kMeasuringUs = 60'000'000;  // the same, if the worker measures its node
constexpr size_t kRendezvousKeyBytes = 32;
constexpr int32_t kPortMax = 65535;

Error spent(const Task& task, int64_t rank) {
  return make_error(ErrorCode::kPermissionDenied, "ENROLMENT_USED",
                    "task " + task.id + " already has a worker" +
                        (task.nodes > 1 ? " of rank " + std::to_string(rank) : "") +
                        ": its secret is valid for one worker only");
}

bool is_numeric_address(const std::string& text) {
  std::array<unsigned char, sizeof(in6_addr)> address{};
  return ::inet_pton(AF_INET, text.c_str(), address.data()) == 1 ||
         ::inet_pton(AF_INET6, text.c_str(), address.data()) == 1;
}

}  // namespace

// ---- The supervisor's thread -------------------------------------------------------------------

void Supervisor::Impl::withdraw(Task& task, const std::string& why) {
  if (std::exchange(task.withdrawn, true)) return;
  spdlog::info("event=remote_worker_withdrawn task={} {} {}", task.id, kv("kind", task.kind),
               kv("why", why));
  in_background([task = task.shared_from_this(), why] {
    try {
      if (task->withdraw) task->withdraw(why);
    } catch (const std::exception& e) {
      spdlog::error("event=withdraw_fault task={} {}", task->id, kv("what", e.what()));
    }
  });
}

void Supervisor::Impl::end_remote(Task& task, TaskEnd end) {
  task.has_remote_end = true;
  end.silent = task.silent;
  end.stalled_ms = task.stalled_ms;
  end.outcome_taken = task.outcome_taken;
  end.version_skew = end.version_skew || task.version_skew;
  spdlog::info("event=remote_worker_ended task={} outcome={}", task.id, end.outcome_taken);
  finish(task, std::move(end));
}

int64_t Supervisor::Impl::watch_remote(Task& task, int64_t now) {
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
    end_remote(task, *std::move(seen));
    return kNever;
  }
  if (task.outcome_taken) {
    const int64_t end_us = task.outcome_us + (task.measures ? kMeasuringUs : kAfterOutcomeUs);
    if (stream_open && now < end_us) return end_us;
    TaskEnd end;
    end.exit.unknown = true;
    end_remote(task, std::move(end));
    return kNever;
  }
  if (stop && now >= stop_us) withdraw(task, *stop);
  if (task.stalled_ms > 0) withdraw(task, "stalled");
  int64_t next = stop && !task.withdrawn ? stop_us : kNever;
  if (!enrolled) return next;
  const int64_t heard = task.heard_us;
  const int64_t silent_us = heard + options.silence_ms * 1000;
  if (now < silent_us) {
    task.logged_silent = false;
    return std::min(next, silent_us);
  }
  if (!std::exchange(task.logged_silent, true)) {
    spdlog::warn("event=remote_worker_not_responding task={} silence_ms={} lease_ms={}", task.id,
                 options.silence_ms, task.lease_us / 1000);
  }
  if (now >= heard + task.lease_us) {
    task.silent = true;
    withdraw(task, "silent");
    return next;
  }
  return std::min(next, heard + task.lease_us);
}

// ---- Functions for other threads ---------------------------------------------------------------

void Supervisor::add_remote(RemoteTask known) {
  TRAINYARD_CHECK(known.nodes >= 1,
                  "task " + known.id + " runs on " + std::to_string(known.nodes) + " nodes");
  auto task = std::make_shared<Task>();
  task->id = std::move(known.id);
  task->kind = std::move(known.kind);
  task->outlives = true;
  task->is_remote = true;
  task->owner = std::move(known.owner);
  task->secret_digest = std::move(known.secret_digest);
  task->lease_us = known.lease_ms * 1000;
  task->nodes = known.nodes;
  task->withdraw = std::move(known.withdraw);
  task->heard_us = impl_->clock.steady_us();
  {
    const MutexLock lock(task->mu);
    task->rank_digests.resize(static_cast<size_t>(task->nodes));
    task->endpoints.resize(static_cast<size_t>(task->nodes));
    task->attached = !known.nonce_digest.empty();  // otherwise it may still attach
    task->nonce_digest = std::move(known.nonce_digest);
  }
  (void)impl_->add(std::move(task));
}

void Supervisor::ended_remote(const std::string& id, TaskEnd end) {
  const std::shared_ptr<Task> task = impl_->find(id);
  if (!task || !task->is_remote) return;
  {
    const MutexLock lock(task->mu);
    task->seen_end = std::move(end);
  }
  impl_->wake_up();
}

void Supervisor::enrol(const v1::EnrolRequest& request, Done<void> done) {
  const std::shared_ptr<Task> task = impl_->find(request.task());
  if (!task || !task->is_remote ||
      !equal_in_constant_time(sha256_hex(request.secret()), task->secret_digest)) {
    return done(fenced_task(request.task()));
  }
  const ProtocolRange spoken = protocols_of(request);
  if (!agree(kProtocols, spoken)) {
    return done(version_skew(*task, request.version(), spoken.text()));
  }
  if (request.rank() < 0 || request.rank() >= task->nodes) {
    return done(field_error("FIELD_OUT_OF_RANGE", "rank",
                            std::to_string(request.rank()) + " is out of range, expected 0.." +
                                std::to_string(task->nodes - 1)));
  }
  if (!is_sha256_hex(request.key())) {
    return done(field_error("FIELD_INVALID", "key", "expected 64 lower-case hexadecimal digits"));
  }
  std::string digest = sha256_hex(enrolment_credential(request.secret(), request.key()));
  {
    const MutexLock lock(task->mu);
    if (task->over) return done(fenced_task(request.task()));
    if (request.rank() > 0) {
      std::string& of_rank = task->rank_digests[static_cast<size_t>(request.rank())];
      if (!of_rank.empty() && of_rank != digest) return done(spent(*task, request.rank()));
      of_rank = std::move(digest);
      return done({});
    }
    if (task->nonce_digest == digest) return done({});  // a repeated request: the response was lost
    if (!task->nonce_digest.empty() || (!task->enrolling.empty() && task->enrolling != digest)) {
      return done(spent(*task, 0));
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

Result<FileGrant> Supervisor::grant(const std::string& id, const std::string& nonce, FileUse use) {
  ASSIGN_OR_RETURN(const Impl::ProvenRank proven,
                   impl_->find_rank(id, nonce, WorkerEndpointKind::kRemote));
  if (use == FileUse::kWrite && proven.rank > 0) return fenced_task(id);
  return proven.task->owner->grant();
}

Result<v1::RendezvousResponse> Supervisor::rendezvous(const v1::RendezvousRequest& request) {
  ASSIGN_OR_RETURN(const Impl::ProvenRank proven,
                   impl_->find_rank(request.task(), request.nonce(), WorkerEndpointKind::kRemote));
  const v1::Endpoint& endpoint = request.endpoint();
  if (endpoint.port() < 1 || endpoint.port() > kPortMax ||
      !is_numeric_address(endpoint.address())) {
    return field_error("FIELD_INVALID", "endpoint",
                       "expected a numeric address and a port from 1 to 65535");
  }
  Task& task = *proven.task;
  const MutexLock lock(task.mu);
  task.endpoints[static_cast<size_t>(proven.rank)] = endpoint;
  v1::RendezvousResponse response;
  if (std::ranges::any_of(task.endpoints, [](const v1::Endpoint& e) { return e.port() == 0; })) {
    return response;
  }
  if (task.rendezvous_key.empty()) task.rendezvous_key = random_hex(kRendezvousKeyBytes);
  response.set_ready(true);
  response.mutable_endpoints()->Add(task.endpoints.begin(), task.endpoints.end());
  response.set_key(task.rendezvous_key);
  return response;
}

Result<v1::SendRatesResponse> Supervisor::take_rates(const v1::SendRatesRequest& request) {
  ASSIGN_OR_RETURN(const Impl::ProvenRank proven,
                   impl_->find_rank(request.task(), request.nonce(), WorkerEndpointKind::kRemote));
  if (proven.rank > 0 || !proven.task->measures) {
    return make_error(ErrorCode::kFailedPrecondition, "RATES_NOT_REQUESTED",
                      "task " + request.task() + " has no request for rates");
  }
  if (Status s = proven.task->owner->measured(request.rates()); !s.ok()) return s.error();
  return v1::SendRatesResponse();
}

void Supervisor::Impl::ask_for_rates(Task& task) {
  std::shared_ptr<CommandSink> sink;
  {
    const MutexLock lock(task.mu);
    // Do not delay a worker that is to stop or that is not connected.
    if (!task.stop) sink = task.sink;
  }
  if (!sink) return;
  std::optional<v1::CalibrateTask> measure = task.owner->to_measure();
  if (!measure) return;
  task.measures = true;
  v1::WorkerCommand command;
  *command.mutable_calibrate() = *std::move(measure);
  sink->send(command);
}

Result<Supervisor::Impl::ProvenRank> Supervisor::Impl::find_rank(const std::string& id,
                                                                 const std::string& nonce,
                                                                 WorkerEndpointKind endpoint) {
  if (auto first = find_proven(id, nonce, endpoint); first.ok()) return ProvenRank{*first, 0};
  std::shared_ptr<Task> task = find(id);
  if (!task || !task->is_remote || endpoint != WorkerEndpointKind::kRemote) return fenced_task(id);
  const std::string digest = sha256_hex(nonce);
  const MutexLock lock(task->mu);
  if (task->over) return fenced_task(id);
  for (size_t rank = 1; rank < task->rank_digests.size(); ++rank) {
    if (equal_in_constant_time(digest, task->rank_digests[rank])) {
      return ProvenRank{task, static_cast<int64_t>(rank)};
    }
  }
  return fenced_task(id);
}

Status Supervisor::admit(const std::string& id, const std::string& nonce) {
  auto task = impl_->find_proven(id, nonce, WorkerEndpointKind::kRemote);
  return task.ok() ? Status() : Status(std::move(task).error());
}

Status Supervisor::admit_any_rank(const std::string& id, const std::string& nonce) {
  auto proven = impl_->find_rank(id, nonce, WorkerEndpointKind::kRemote);
  return proven.ok() ? Status() : Status(std::move(proven).error());
}

bool Supervisor::connected(const std::string& id) const {
  const std::shared_ptr<Task> task = impl_->find(id);
  if (!task) return false;
  const MutexLock lock(task->mu);
  return task->sink != nullptr;
}

std::optional<int64_t> Supervisor::silent_ms(const std::string& id) const {
  const std::shared_ptr<Task> task = impl_->find(id);
  if (!task || !task->is_remote) return std::nullopt;
  {
    const MutexLock lock(task->mu);
    if (task->nonce_digest.empty()) return std::nullopt;
  }
  return std::max<int64_t>(0, impl_->clock.steady_us() - task->heard_us) / 1000;
}

}  // namespace trainyard::server
