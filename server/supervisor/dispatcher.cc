#include "server/supervisor/dispatcher.h"

#include <malloc.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "server/config/log.h"
#include "server/inventory/checked_inventory.h"
#include "server/scheduler/scheduler.h"
#include "server/supervisor/train_task.h"
#include "src/base/mutex.h"
#include "src/base/sha256.h"

namespace trainyard::server {
namespace {

/// After an error of the store or of a start, so that a broken disk does not cause a busy loop.
constexpr int64_t kErrorPauseUs = 1'000'000;
/// While every slot is taken, new jobs only need their reason to wait: they are handled together,
/// so that a flood of submits does not read the whole queue for each one.
constexpr int64_t kFullPauseUs = 250'000;

/// No startable job would find a slot.
bool all_slots_taken(const Snapshot& snapshot) {
  for (const Device& device : snapshot.inventory.devices) {
    if (!device.schedulable) continue;
    const auto taken =
        std::count_if(snapshot.placed.begin(), snapshot.placed.end(), [&](const PlacedJob& p) {
          return std::ranges::find(p.devices, device.name) != p.devices.end();
        });
    if (taken < device.slots) return false;
  }
  return true;
}

/// Of an attempt: the same to every daemon.
std::string task_id(const Job& job) { return job.uid + "-" + std::to_string(job.attempt); }

std::string last_segment(const std::string& name) { return name.substr(name.rfind('/') + 1); }

}  // namespace

struct Dispatcher::Impl : std::enable_shared_from_this<Dispatcher::Impl> {
  Impl(Store& s, Supervisor& sup, Inventory& inv, Files& f, DispatcherOptions o, const Clock& c)
      : store(s), supervisor(sup), inventory(inv), files(f), options(std::move(o)), clock(c) {}

  struct Live {
    std::string task;
    int32_t attempt = 0;
    std::vector<std::string> devices;
  };

  void observe(std::span<const JobChange> changes);
  void run();
  void wait_for_work(MutexLock& lock) TRAINYARD_REQUIRES(mu);
  void forget(const std::vector<std::pair<std::string, int32_t>>& ended);
  void dispatch(bool drain_now);
  void start_attempt(const Job& job, const StartDecision& decision,
                     const std::vector<Device>& devices);
  Result<Dataset> dataset_of(const Job& job) const;
  std::shared_ptr<TrainTask> make_owner(const Job& job, const Dataset& dataset, bool adopted);
  Status adopt(const Job& job);
  void store_wait_reasons(const std::vector<Job>& jobs, const std::vector<WaitDecision>& waits);

  Store& store;
  Supervisor& supervisor;
  Inventory& inventory;
  Files& files;
  const DispatcherOptions options;
  const Clock& clock;

  Mutex mu;
  CondVar changed;
  bool dirty TRAINYARD_GUARDED_BY(mu) = true;    // a job changed
  bool urgent TRAINYARD_GUARDED_BY(mu) = false;  // more than a new job
  bool stopping TRAINYARD_GUARDED_BY(mu) = false;
  bool draining TRAINYARD_GUARDED_BY(mu) = false;
  int64_t drain_grace_ms TRAINYARD_GUARDED_BY(mu) = 0;
  // Jobs whose workers must stop: uid, why.
  std::vector<std::pair<std::string, const char*>> to_stop TRAINYARD_GUARDED_BY(mu);
  std::vector<std::pair<std::string, int32_t>> ended TRAINYARD_GUARDED_BY(mu);  // uid, attempt

  const std::shared_ptr<HostTrouble> trouble = std::make_shared<HostTrouble>();

  // Used only by the dispatcher's thread.
  std::unordered_map<std::string, Live> live;  // by uid
  std::optional<int64_t> wake_time_us;
  bool full = false;         // no slot was free after the last pass
  int64_t look_time_us = 0;  // from the last pass
  std::jthread thread;
};

void Dispatcher::Impl::observe(std::span<const JobChange> changes) {
  bool wake = false;
  {
    const MutexLock lock(mu);
    for (const JobChange& change : changes) {
      const bool stops = change.cancel_requested || change.pause_requested;
      if (stops && is_active(change.state)) {
        to_stop.emplace_back(change.uid, change.cancel_requested ? "cancel" : "pause");
        urgent = true;
      }
      wake = wake || change.reschedules || stops;
    }
    dirty = dirty || wake;
  }
  if (wake) changed.notify_one();
}

void Dispatcher::Impl::run() {
  for (;;) {
    std::vector<std::pair<std::string, const char*>> stops;
    std::vector<std::pair<std::string, int32_t>> gone;
    bool drain_now = false;
    int64_t grace_ms = 0;
    {
      MutexLock lock(mu);
      wait_for_work(lock);
      if (stopping) return;
      dirty = false;
      urgent = false;
      stops.swap(to_stop);
      gone.swap(ended);
      drain_now = draining;
      grace_ms = drain_grace_ms;
    }
    forget(gone);
    for (const auto& [uid, reason] : stops) {
      if (const auto it = live.find(uid); it != live.end()) {
        supervisor.stop(it->second.task, reason);
      }
    }
    if (drain_now) {
      for (const auto& [uid, l] : live) supervisor.stop(l.task, "drain", grace_ms);
    }
    try {
      dispatch(drain_now);
    } catch (const std::exception& e) {
      spdlog::error("event=dispatch_fault {}", kv("what", e.what()));
      wake_time_us = clock.wall_us() + kErrorPauseUs;
    }
  }
}

void Dispatcher::Impl::wait_for_work(MutexLock& lock) {
  if (wake_time_us) {
    const int64_t wait_us = std::max<int64_t>(0, *wake_time_us - clock.wall_us());
    changed.wait_for(lock, std::chrono::microseconds(wait_us),
                     [this]() TRAINYARD_REQUIRES(mu) { return dirty || urgent; });
  } else {
    changed.wait(lock, [this]() TRAINYARD_REQUIRES(mu) { return dirty || urgent; });
  }
  if (!full) return;
  const int64_t rest_us = look_time_us + kFullPauseUs - clock.steady_us();
  changed.wait_for(lock, std::chrono::microseconds(rest_us),
                   [this]() TRAINYARD_REQUIRES(mu) { return urgent; });
}

void Dispatcher::Impl::forget(const std::vector<std::pair<std::string, int32_t>>& gone) {
  for (const auto& [uid, attempt] : gone) {
    const auto it = live.find(uid);
    if (it != live.end() && it->second.attempt == attempt) live.erase(it);
  }
}

void Dispatcher::Impl::dispatch(bool drain_now) {
  wake_time_us.reset();
  full = false;
  look_time_us = clock.steady_us();
  const Result<std::vector<Job>> jobs = store.jobs().list_unfinished();
  if (!jobs.ok()) {
    spdlog::error("event=dispatch_failed {}", kv("message", jobs.error().message));
    wake_time_us = clock.wall_us() + kErrorPauseUs;
    return;
  }
  if (jobs->empty()) {
    // Idle from here on: return the heap's growth from the last jobs to the system.
    if (live.empty()) ::malloc_trim(0);
    return;
  }
  Snapshot snapshot = make_snapshot(*jobs, inventory.read(), drain_now);
  const std::vector<Device>& devices = snapshot.inventory.devices;
  // A job may be finished while its process is still exiting: the slot is free once that is gone.
  std::set<std::string> placed;
  for (const PlacedJob& p : snapshot.placed) placed.insert(p.uid);
  for (const auto& [uid, l] : live) {
    if (!placed.contains(uid)) snapshot.placed.push_back({uid, l.devices});
  }
  const Decisions decisions = decide(snapshot, clock.wall_us());
  wake_time_us = decisions.wake_time_us;
  if (!decisions.waits.empty() && std::ranges::any_of(devices, &Device::busy)) {
    // Nothing reports when the process that uses it ends.
    wake_time_us = std::min(wake_time_us.value_or(std::numeric_limits<int64_t>::max()),
                            clock.wall_us() + CheckedInventory::kBusyRetryUs);
  }
  for (const StartDecision& start : decisions.starts) {
    const auto job =
        std::find_if(jobs->begin(), jobs->end(), [&](const Job& j) { return j.uid == start.uid; });
    if (job != jobs->end() && !live.contains(start.uid)) {
      start_attempt(*job, start, devices);
    }
    snapshot.placed.push_back({start.uid, start.devices});
  }
  full = all_slots_taken(snapshot);
  store_wait_reasons(*jobs, decisions.waits);
}

void Dispatcher::Impl::start_attempt(const Job& job, const StartDecision& decision,
                                     const std::vector<Device>& devices) {
  const auto pause = [&](const Error& error) {
    spdlog::error("event=start_failed {} {}", kv("job", job.name()), kv("message", error.message));
    wake_time_us = clock.wall_us() + kErrorPauseUs;
  };
  const Result<Dataset> dataset = dataset_of(job);
  if (!dataset.ok()) return pause(dataset.error());
  if (Status s = files.create_directories(options.paths.checkpoints(job.uid)); !s.ok()) {
    return pause(s.error());
  }
  const std::string nonce = Supervisor::make_nonce();
  Result<Job> started = store.jobs().start_attempt(job.uid, decision.devices, sha256_hex(nonce),
                                                   decision.reason, decision.message);
  if (!started.ok()) {  // just cancelled: that change wakes us again
    if (started.error().reason != "JOB_STATE_CONFLICT") pause(started.error());
    return;
  }
  spdlog::info("event=job_starting {} attempt={} {} {}", kv("job", job.name()), started->attempt,
               kv("device", started->devices_text()), kv("reason", decision.reason));
  Supervisor::NewTask fresh;
  fresh.id = task_id(*started);
  fresh.kind = "train " + job.name();
  fresh.outlives = true;
  fresh.owner = make_owner(*started, *dataset, /*adopted=*/false);
  fresh.nonce = nonce;
  for (const std::string& name : decision.devices) {
    const auto device = std::ranges::find(devices, name, &Device::name);
    if (device != devices.end()) fresh.gpus.push_back(device->uuid);
  }
  std::string task = supervisor.start(std::move(fresh));
  live.insert_or_assign(job.uid, Live{std::move(task), started->attempt, decision.devices});
}

Result<Dataset> Dispatcher::Impl::dataset_of(const Job& job) const {
  // A stored spec has the full name.
  const auto ref = parse_dataset_ref(last_segment(job.spec.dataset().name()));
  return store.datasets().find(job.tenant, ref.value_or(DatasetRef{}));
}

std::shared_ptr<TrainTask> Dispatcher::Impl::make_owner(const Job& job, const Dataset& dataset,
                                                        bool adopted) {
  TrainTaskOptions task{
      options.paths,
      dataset.digest,
      dataset.schema,
      job.spec.resources().has_threads() ? job.spec.resources().threads() : options.threads_per_job,
      options.time_algorithms,
      trouble,
      adopted};
  const auto gone = [impl = shared_from_this(), uid = job.uid, attempt = job.attempt,
                     names = job.devices, adopted](bool doubts_device) {
    for (const std::string& device : names) {  // with several, the faulty one is unknown
      if (doubts_device) impl->inventory.doubt(device);
      if (adopted) impl->inventory.set_inherited(device, false);
    }
    {
      const MutexLock lock(impl->mu);
      impl->ended.emplace_back(uid, attempt);
      impl->urgent = true;
    }
    impl->changed.notify_one();
  };
  return std::make_shared<TrainTask>(store, clock, job, std::move(task), gone);
}

Status Dispatcher::Impl::adopt(const Job& job) {
  ASSIGN_OR_RETURN(const Attempt attempt, store.jobs().find_attempt(job.uid, job.attempt));
  ASSIGN_OR_RETURN(const Dataset dataset, dataset_of(job));  // an unfinished job holds it
  for (const std::string& device : job.devices) inventory.set_inherited(device, true);
  const std::string id = task_id(job);
  live.insert_or_assign(job.uid, Live{id, job.attempt, job.devices});
  supervisor.adopt({id, "train " + job.name(), make_owner(job, dataset, /*adopted=*/true),
                    attempt.nonce_digest, attempt.pid, attempt.process_start});
  if (job.cancel_requested || job.pause_requested) {
    supervisor.stop(id, job.cancel_requested ? "cancel" : "pause");
  }
  return {};
}

void Dispatcher::Impl::store_wait_reasons(const std::vector<Job>& jobs,
                                          const std::vector<WaitDecision>& waits) {
  std::unordered_map<std::string, const Job*> by_uid;
  for (const Job& job : jobs) by_uid.emplace(job.uid, &job);
  std::vector<WaitReason> changed_reasons;
  for (const WaitDecision& wait : waits) {
    const auto it = by_uid.find(wait.uid);
    if (it == by_uid.end()) continue;
    if (it->second->reason == wait.reason && it->second->message == wait.message) continue;
    changed_reasons.push_back({wait.uid, wait.reason, wait.message});
  }
  if (changed_reasons.empty()) return;
  if (Status s = store.jobs().set_wait_reasons(std::move(changed_reasons)); !s.ok()) {
    spdlog::warn("event=wait_reasons_not_stored {}", kv("message", s.error().message));
  }
}

Dispatcher::Dispatcher(Store& store, Supervisor& supervisor, Inventory& inventory, Files& files,
                       DispatcherOptions options, const Clock& clock)
    : impl_(
          std::make_shared<Impl>(store, supervisor, inventory, files, std::move(options), clock)) {
  store.observe([impl = impl_](std::span<const JobChange> changes) { impl->observe(changes); });
}

Dispatcher::~Dispatcher() { halt(); }

void Dispatcher::halt() {
  {
    const MutexLock lock(impl_->mu);
    impl_->stopping = true;
    impl_->urgent = true;
  }
  impl_->changed.notify_all();
  if (impl_->thread.joinable()) impl_->thread.join();
}

Status Dispatcher::recover() {
  ASSIGN_OR_RETURN(const std::vector<Job> unfinished, impl_->store.jobs().list_unfinished());
  for (const Job& job : unfinished) {
    if (!is_active(job.state)) continue;
    if (Status s = impl_->adopt(job); !s.ok()) return s;
  }
  return {};
}

void Dispatcher::start() {
  impl_->thread = std::jthread([impl = impl_.get()] { impl->run(); });
}

void Dispatcher::devices_changed() {
  {
    const MutexLock lock(impl_->mu);
    impl_->urgent = true;
  }
  impl_->changed.notify_one();
}

void Dispatcher::drain(int64_t grace_ms) {
  {
    const MutexLock lock(impl_->mu);
    impl_->draining = true;
    impl_->drain_grace_ms = grace_ms;
    impl_->urgent = true;
  }
  impl_->changed.notify_one();
}

}  // namespace trainyard::server
