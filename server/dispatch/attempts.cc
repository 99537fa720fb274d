#include "server/dispatch/attempts.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "proto/convert/resources.h"
#include "server/config/log.h"
#include "server/scheduler/reasons.h"
#include "src/base/check.h"
#include "src/base/sha256.h"

namespace trainyard::server {
namespace {

/// Returns an ID that depends only on job and attempt, so that every daemon computes the same one.
std::string task_id(const Job& job) { return job.uid + "-" + std::to_string(job.attempt); }

/// Returns the sum of the energy counters of the devices of these names; nothing if one of them has
/// none.
std::optional<double> energy_of(const std::vector<Device>& devices,
                                const std::vector<std::string>& names) {
  double joules = 0;
  for (const std::string& name : names) {
    const auto device = std::ranges::find(devices, name, &Device::name);
    if (device == devices.end() || !device->energy_joules) return std::nullopt;
    joules += *device->energy_joules;
  }
  return joules;
}

}  // namespace

Status Attempts::start(const StartDecision& decision, const std::vector<Device>& devices) {
  const Result<Job> job = parts_.store.jobs().find_uid(decision.uid);
  if (!job.ok()) {  // the job was just deleted; that change wakes the dispatcher again
    return job.error().reason == "JOB_NOT_FOUND" ? Status() : Status(job.error());
  }
  ASSIGN_OR_RETURN(const Dataset dataset, dataset_of(*job));
  const std::filesystem::path folder = parts_.options.paths.checkpoints(job->uid);
  std::error_code ec;
  if (!std::filesystem::exists(parts_.options.paths.root(), ec)) {
    return make_error(ErrorCode::kUnavailable, "STORAGE_ERROR",
                      "the state folder was moved or deleted; restart the daemon");
  }
  if (Status s = parts_.files.create_directories(folder); !s.ok()) return s;
  const bool is_here = cluster_of(decision.devices).empty();
  // A cluster's worker has no nonce before it enrols.
  const std::string nonce = is_here ? Supervisor::make_nonce() : std::string();
  Result<Job> started = parts_.store.jobs().start_attempt(job->uid, decision.devices,
                                                          nonce.empty() ? nonce : sha256_hex(nonce),
                                                          decision.reason, decision.message);
  if (!started.ok()) {  // the job was just cancelled; that change wakes the dispatcher again
    const bool is_conflict = started.error().reason == "JOB_STATE_CONFLICT";
    return is_conflict ? Status() : Status(started.error());
  }
  TRAINYARD_CHECK(started->attempt > job->attempt, "attempt " + std::to_string(started->attempt) +
                                                       " of " + job->name() +
                                                       " is not newer than the last one");
  spdlog::info("event=job_starting {} attempt={} {} {}", kv("job", started->name()),
               started->attempt, kv("device", started->devices_text()),
               kv("reason", decision.reason));
  if (is_here) {
    start_here(*started, dataset, nonce, devices);
  } else {
    const auto owner = make_owner(*started, dataset, /*adopted=*/false);
    add(*started, task_id(*started), owner);
    submit_to_cluster(*started, Attempt(), owner, /*adopted=*/false);
  }
  parts_.index.take(brief_of(*started));  // the store will report the same change later
  if (is_here) note_shared(decision.devices);
  return {};
}

void Attempts::start_here(const Job& job, const Dataset& dataset, const std::string& nonce,
                          const std::vector<Device>& devices) {
  const std::shared_ptr<TrainTask> owner = make_owner(job, dataset, /*adopted=*/false);
  Supervisor::NewTask task;
  task.id = task_id(job);
  task.kind = "train " + job.name();
  task.outlives = true;
  task.owner = owner;
  task.nonce = nonce;
  task.sandbox = owner->sandbox();
  for (const std::string& name : job.devices) {
    const auto device = std::ranges::find(devices, name, &Device::name);
    if (device != devices.end()) task.gpus.push_back(device->uuid);
  }
  add(job, parts_.supervisor.start(std::move(task)), owner);
  live_.at(job.uid).energy_joules = energy_of(devices, job.devices);
}

void Attempts::add(const Job& job, std::string task, std::shared_ptr<TrainTask> owner) {
  parts_.index.add_process(job.uid, job.devices);
  live_.insert_or_assign(job.uid, Live{std::move(task), job.attempt, job.devices, std::move(owner),
                                       std::string(cluster_of(job.devices))});
}

Status Attempts::adopt(const Job& job) {
  ASSIGN_OR_RETURN(const Attempt attempt, parts_.store.jobs().find_attempt(job.uid, job.attempt));
  // The dataset exists: it cannot be deleted while an unfinished job uses it.
  ASSIGN_OR_RETURN(const Dataset dataset, dataset_of(job));
  for (const std::string& device : job.devices) parts_.inventory.set_inherited(device, true);
  const std::string id = task_id(job);
  const std::shared_ptr<TrainTask> owner = make_owner(job, dataset, /*adopted=*/true);
  TRAINYARD_CHECK(!live_.contains(job.uid), job.name() + " is adopted twice");
  add(job, id, owner);
  if (cluster_of(job.devices).empty()) {
    parts_.supervisor.adopt({id, "train " + job.name(), owner, attempt.nonce_digest, attempt.pid,
                             attempt.process_start});
  } else {
    submit_to_cluster(job, attempt, owner, /*adopted=*/true);
  }
  if (job.cancel_requested || job.pause_requested) {
    parts_.supervisor.stop(id, job.cancel_requested ? "cancel" : "pause");
  }
  return {};
}

void Attempts::forget(const std::string& uid, int32_t attempt) {
  const auto it = live_.find(uid);
  if (it == live_.end() || it->second.attempt != attempt) return;
  Live& live = it->second;
  if (!live.cluster.empty()) parts_.clusters.forget(live.cluster, uid, attempt);
  if (live.energy_joules && !live.shares) {
    ended_.push_back({uid, attempt, std::move(live.devices), *live.energy_joules});
  }
  live_.erase(it);
  parts_.index.remove_process(uid);
}

void Attempts::store_energy(const std::vector<Device>& devices) {
  for (const Ended& ended : std::exchange(ended_, {})) {
    const std::optional<double> now = energy_of(devices, ended.devices);
    // The counter begins anew when the driver is loaded.
    if (!now || *now < ended.energy_joules) continue;
    parts_.store.quotas().add_energy(
        ended.uid, ended.attempt, *now - ended.energy_joules, [uid = ended.uid](const Status& s) {
          if (s.ok()) return;
          spdlog::warn("event=energy_not_stored uid={} {}", uid, kv("what", s.error().message));
        });
  }
}

void Attempts::stop(const std::string& uid, const char* reason) {
  const auto it = live_.find(uid);
  if (it == live_.end()) return;
  parts_.supervisor.stop(it->second.task, reason);
  parts_.index.leave(uid);
}

void Attempts::drain(int64_t grace_ms) {
  for (const auto& [uid, l] : live_) {
    if (l.cluster.empty()) parts_.supervisor.stop(l.task, "drain", grace_ms);
  }
}

void Attempts::stop_overdue() {
  for (const std::string& uid : parts_.index.take_overdue()) {
    if (const auto it = live_.find(uid); it != live_.end()) {
      spdlog::info("event=job_time_limit_reached uid={} {}", uid, kv("task", it->second.task));
      stop(uid, "time limit");
    }
  }
}

void Attempts::vacate(const std::vector<Device>& devices) {
  for (const Device& device : devices) {
    if (!device.vacate) continue;
    for (auto& [uid, l] : live_) {
      if (l.leaves || std::ranges::find(l.devices, device.name) == l.devices.end()) continue;
      l.leaves = true;
      spdlog::info("event=device_vacated {} {}", kv("device", device.name), kv("task", l.task));
      stop(uid, "drain");
    }
  }
}

void Attempts::make_room(const PreemptDecision& decision) {
  const auto it = live_.find(decision.uid);
  if (it == live_.end()) return;
  spdlog::info("event=job_preempted uid={} for_uid={}", decision.uid, decision.for_uid);
  it->second.owner->make_room(
      decision.for_name.empty() ? std::string(kJobOfAnotherProject) + " that has a higher priority"
                                : decision.for_name + ", a job of higher priority");
  stop(decision.uid, "preempt");
}

void Attempts::note_shared(const std::vector<std::string>& devices) {
  std::vector<std::string> uids;
  for (std::string& uid : parts_.index.sharing(devices)) {
    const auto it = live_.find(uid);
    if (it == live_.end() || std::exchange(it->second.shares, true)) continue;
    uids.push_back(std::move(uid));
  }
  if (uids.empty()) return;
  parts_.store.jobs().note_shared(std::move(uids), [](const Status& noted) {
    if (!noted.ok()) spdlog::warn("event=sharing_not_stored {}", kv("what", noted.error().message));
  });
}

Result<Dataset> Attempts::dataset_of(const Job& job) const {
  // Another project may share the dataset.
  const StoredName name = split_stored_name(job.project, job.spec.dataset().name());
  return parts_.store.datasets().find(name.project,
                                      parse_dataset_ref(name.id).value_or(DatasetRef{}));
}

std::shared_ptr<TrainTask> Attempts::make_owner(const Job& job, const Dataset& dataset,
                                                bool adopted) {
  const v1::Resources& resources = job.spec.resources();
  TrainTaskOptions task{
      parts_.options.paths,
      dataset.digest,
      dataset.schema,
      resources.has_threads() ? resources.threads() : parts_.options.threads_per_job,
      parts_.options.time_algorithms,
      trouble_,
      adopted,
      /*is_remote=*/!cluster_of(job.devices).empty(),
      parts_.setup.rates};
  const auto gone = [self = self_.lock(), uid = job.uid, attempt = job.attempt, names = job.devices,
                     adopted](bool doubts_device) {
    for (const std::string& device : names) {  // if there are several, the faulty one is unknown
      if (doubts_device) self->parts_.inventory.doubt(device);
      if (adopted) self->parts_.inventory.set_inherited(device, false);
    }
    self->parts_.gone(uid, attempt);
  };
  return std::make_shared<TrainTask>(parts_.store, parts_.supervisor, parts_.clock, job,
                                     std::move(task), gone);
}

ClusterAttempt Attempts::cluster_attempt(const Job& job, const Attempt& attempt,
                                         bool adopted) const {
  ClusterAttempt to;
  to.uid = job.uid;
  to.attempt = job.attempt;
  to.job = job.name();
  to.project = job.project;
  to.owner = job.owner;
  to.priority = job.priority;
  to.handle = attempt.handle;
  to.may_exist = adopted;
  const v1::Forecast* const forecast = forecast_on(job.plan, job.device());
  if (forecast != nullptr && forecast->starts() <= 1) to.rest = brief_of(job).on_gpu;
  to.intent.task = task_id(job);
  to.intent.title = job.name();
  to.found = [self = self_, cluster = std::string(cluster_of(job.devices)), uid = job.uid,
              number = job.attempt](const std::string& handle) {
    const auto attempts = self.lock();
    if (!attempts) return;
    attempts->parts_.store.jobs().set_handle(
        uid, number, handle, "submitted to the cluster " + cluster + " as " + handle,
        [uid](const Status& stored) {
          // If not, the next daemon searches the cluster for the attempt's name.
          if (stored.ok()) return;
          spdlog::warn("event=cluster_handle_not_stored uid={} {}", uid,
                       kv("message", stored.error().message));
        });
  };
  return to;
}

void Attempts::submit_to_cluster(const Job& job, const Attempt& attempt,
                                 const std::shared_ptr<TrainTask>& owner, bool adopted) {
  const std::string cluster(cluster_of(job.devices));
  const auto config = std::ranges::find(parts_.configs, cluster, &ClusterConfig::name);
  ClusterAttempt to = cluster_attempt(job, attempt, adopted);
  AttemptIntent& intent = to.intent;
  if (config != parts_.configs.end()) {
    intent.name = "ty-" + parts_.setup.instance() + "-" + intent.task;
    intent.attach = parts_.setup.attach();
    intent.certificate_pem = parts_.setup.certificate_pem();
    intent.secret = parts_.setup.secret(intent.task);
  }
  Supervisor::RemoteTask task;
  task.id = intent.task;
  task.kind = "train " + job.name();
  task.owner = owner;
  task.secret_digest = sha256_hex(intent.secret);
  task.nonce_digest = attempt.nonce_digest;
  task.withdraw = [self = self_, cluster, uid = job.uid,
                   number = job.attempt](const std::string& why) {
    spdlog::info("event=cluster_job_withdrawn {} uid={} {}", kv("cluster", cluster), uid,
                 kv("why", why));
    if (const auto attempts = self.lock()) {
      attempts->parts_.clusters.withdraw(cluster, uid, number);
    }
  };
  if (config == parts_.configs.end()) {
    parts_.supervisor.add_remote(std::move(task));
    TaskEnd end;
    end.remote_end = RemoteEnd{"", "the server no longer has the cluster " + cluster};
    return parts_.supervisor.ended_remote(intent.task, std::move(end));
  }
  const v1::Resources& resources = job.spec.resources();
  intent.nodes = nodes_of(resources);
  task.nodes = intent.nodes;
  intent.cpus = resources.has_threads() ? resources.threads() : config->cpus;
  intent.gpus_per_node = resources.device() == v1::Resources::GPU ? gpus_of(resources) : 0;
  intent.memory_bytes = config->memory_bytes;
  task.lease_ms = int64_t{config->lease_seconds} * 1000;
  parts_.supervisor.add_remote(std::move(task));
  parts_.clusters.submit(cluster, std::move(to));
}

}  // namespace trainyard::server
