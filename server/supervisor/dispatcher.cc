#include "server/supervisor/dispatcher.h"

#include <malloc.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "server/config/log.h"
#include "server/inventory/checked_inventory.h"
#include "server/scheduler/queue.h"
#include "server/scheduler/scheduler.h"
#include "server/supervisor/train_task.h"
#include "src/base/mutex.h"
#include "src/base/sha256.h"

namespace trainyard::server {
namespace {

/// After an error of the store or of a start, so that a broken disk does not cause a busy loop.
constexpr int64_t kErrorPauseUs = 1'000'000;
/// While every slot is taken, new jobs only join the queue: they are handled together, so that a
/// flood of submits does not read the devices for each one.
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

/// A device on which nothing starts, by command.
struct Drained {
  DeviceKind kind;
  std::string name, reason;
};
std::vector<Drained> drained_of(const std::vector<Device>& devices) {
  std::vector<Drained> drained;
  for (const Device& device : devices) {
    if (device.drained) drained.push_back({device.kind, device.name, device.reason});
  }
  return drained;
}

/// Adds which of the devices that it could use are drained: one example is enough, and the note on
/// GPUs may have given it.
void name_drained(const DeviceRequest& asked, const std::vector<Drained>& drained,
                  WaitReason& why) {
  for (const Drained& device : drained) {
    const bool may_use = asked.wish == DeviceWish::kAuto ||
                         (asked.wish == DeviceWish::kCpu) == (device.kind == DeviceKind::kCpu);
    if (!may_use) continue;
    if (why.message.find(device.name) == std::string::npos) {
      why.message += " " + device.name + ": " + device.reason;
    }
    return;
  }
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
    bool leaves = false;  // asked to, because its device is drained
  };

  void observe(std::span<const JobChange> changes);
  void run();
  void wait_for_work(MutexLock& lock) TRAINYARD_REQUIRES(mu);
  void forget(const std::vector<std::pair<std::string, int32_t>>& ended);
  /// Puts into the index what is not yet in it: at first what the store has, then `changes`.
  Status update_index(std::vector<JobBrief> changes);
  void take(const JobBrief& job);
  /// Stops the workers whose jobs have trained as long as they may: their next move is FAILED.
  void stop_overdue();
  void dispatch(bool drain_now);
  /// Sends the jobs on these devices back to the queue, as far as they are drained to that end.
  void vacate(const std::vector<Device>& devices);
  Snapshot make_snapshot(bool drain_now);
  void tell_waits(WaitReasons reasons, std::vector<Drained> devices);
  void start_job(const StartDecision& decision, const std::vector<Device>& devices);
  void start_attempt(const Job& job, const StartDecision& decision,
                     const std::vector<Device>& devices);
  Result<Dataset> dataset_of(const Job& job) const;
  std::shared_ptr<TrainTask> make_owner(const Job& job, const Dataset& dataset, bool adopted);
  Status adopt(const Job& job);

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
  std::vector<JobBrief> rescheduled TRAINYARD_GUARDED_BY(mu);  // in the order of their commits
  // Of the last pass, for explained(); replaced and never changed.
  std::shared_ptr<const WaitReasons> waits TRAINYARD_GUARDED_BY(mu) =
      std::make_shared<const WaitReasons>();
  std::shared_ptr<const std::vector<Drained>> drained TRAINYARD_GUARDED_BY(mu) =
      std::make_shared<const std::vector<Drained>>();

  const std::shared_ptr<HostTrouble> trouble = std::make_shared<HostTrouble>();

  // Used only by the dispatcher's thread. The index: the truth is in the store, which tells of
  // every change after its commit.
  bool indexed = false;
  Queue queue;
  std::map<std::string, std::vector<std::string>, std::less<>> placed;  // devices by uid
  std::unordered_map<std::string, Live> live;                           // by uid
  // When RUNNING jobs reach their time limits: wall time, uid; and the same by uid.
  std::set<std::pair<int64_t, std::string>> deadlines;
  std::unordered_map<std::string, int64_t> deadline_of;
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
      if (change.reschedules) rescheduled.push_back(*change.reschedules);
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
    std::vector<JobBrief> changes;
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
      changes.swap(rescheduled);
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
    wake_time_us.reset();
    try {
      if (Status s = update_index(std::move(changes)); s.ok()) {
        dispatch(drain_now);
        stop_overdue();
      } else {
        spdlog::error("event=dispatch_failed {}", kv("message", s.error().message));
        wake_time_us = clock.wall_us() + kErrorPauseUs;
      }
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

// A change may be told before and after the first read has seen it. What is taken last is newest:
// until then a job may be offered that has just ended, which the store refuses to start.
Status Dispatcher::Impl::update_index(std::vector<JobBrief> changes) {
  if (!indexed) {
    // `changes` are not lost with an error: the next try reads what they left behind.
    queue.clear();
    placed.clear();
    deadlines.clear();
    deadline_of.clear();
    if (Status s = store.jobs().read_unfinished([this](const JobBrief& job) { take(job); });
        !s.ok()) {
      return s;
    }
  }
  indexed = false;  // until all changes are in it: after an exception it is read again
  for (const JobBrief& job : changes) take(job);
  indexed = true;
  return {};
}

void Dispatcher::Impl::take(const JobBrief& job) {
  if (std::optional<WaitingJob> waiting = waiting_job(job)) {
    queue.put(std::move(*waiting));
  } else {
    queue.remove(job.uid);
  }
  if (is_active(job.state)) {
    placed.insert_or_assign(job.uid, job.devices);
  } else {
    placed.erase(job.uid);
  }
  if (const auto known = deadline_of.find(job.uid); known != deadline_of.end()) {
    deadlines.erase({known->second, job.uid});
    deadline_of.erase(known);
  }
  if (job.running_since_us != 0 && job.resources.has_time_limit_seconds()) {
    const int64_t deadline_us =
        job.running_since_us - job.run_time_us + job.resources.time_limit_seconds() * 1'000'000;
    deadlines.emplace(deadline_us, job.uid);
    deadline_of.emplace(job.uid, deadline_us);
  }
}

void Dispatcher::Impl::stop_overdue() {
  while (!deadlines.empty() && deadlines.begin()->first <= clock.wall_us()) {
    const std::string uid = deadlines.begin()->second;
    deadlines.erase(deadlines.begin());
    deadline_of.erase(uid);
    if (const auto it = live.find(uid); it != live.end()) {
      spdlog::info("event=time_limit uid={} {}", uid, kv("task", it->second.task));
      supervisor.stop(it->second.task, "time limit");
    }
  }
  if (deadlines.empty()) return;
  wake_time_us = std::min(wake_time_us.value_or(std::numeric_limits<int64_t>::max()),
                          deadlines.begin()->first);
}

Snapshot Dispatcher::Impl::make_snapshot(bool drain_now) {
  Snapshot snapshot;
  snapshot.inventory = inventory.read();
  snapshot.draining = drain_now;
  for (const auto& [uid, devices] : placed) snapshot.placed.push_back({uid, devices});
  // A job may be finished while its process is still exiting: the slot is free once that is gone.
  for (const auto& [uid, l] : live) {
    if (!placed.contains(uid)) snapshot.placed.push_back({uid, l.devices});
  }
  return snapshot;
}

void Dispatcher::Impl::dispatch(bool drain_now) {
  full = false;
  look_time_us = clock.steady_us();
  if (queue.empty() && placed.empty()) {
    // Idle from here on: return the heap's growth from the last jobs to the system.
    if (live.empty()) ::malloc_trim(0);
    return tell_waits({}, {});
  }
  Snapshot snapshot = make_snapshot(drain_now);
  const std::vector<Device>& devices = snapshot.inventory.devices;
  vacate(devices);
  Decisions decisions = decide(queue, snapshot, clock.wall_us());
  wake_time_us = decisions.wake_time_us;
  if (!decisions.waits.by_request.empty() && std::ranges::any_of(devices, &Device::busy)) {
    // Nothing reports when the process that uses it ends.
    wake_time_us = std::min(wake_time_us.value_or(std::numeric_limits<int64_t>::max()),
                            clock.wall_us() + CheckedInventory::kBusyRetryUs);
  }
  for (const StartDecision& start : decisions.starts) {
    // While the last process of the job exits, it waits for that.
    if (!live.contains(start.uid)) start_job(start, devices);
    snapshot.placed.push_back({start.uid, start.devices});
  }
  full = all_slots_taken(snapshot);
  tell_waits(std::move(decisions.waits), drained_of(devices));
}

void Dispatcher::Impl::vacate(const std::vector<Device>& devices) {
  for (const Device& device : devices) {
    if (!device.vacate) continue;
    for (auto& [uid, l] : live) {
      if (l.leaves || std::ranges::find(l.devices, device.name) == l.devices.end()) continue;
      l.leaves = true;
      spdlog::info("event=device_vacated {} {}", kv("device", device.name), kv("task", l.task));
      supervisor.stop(l.task, "drain");
    }
  }
}

void Dispatcher::Impl::tell_waits(WaitReasons reasons, std::vector<Drained> devices) {
  auto told = std::make_shared<const WaitReasons>(std::move(reasons));
  auto known = std::make_shared<const std::vector<Drained>>(std::move(devices));
  const MutexLock lock(mu);
  waits = std::move(told);
  drained = std::move(known);
}

void Dispatcher::Impl::start_job(const StartDecision& decision,
                                 const std::vector<Device>& devices) {
  const Result<Job> job = store.jobs().find_uid(decision.uid);
  if (job.ok()) return start_attempt(*job, decision, devices);
  if (job.error().reason == "JOB_NOT_FOUND") return;  // just deleted: that change wakes us again
  spdlog::error("event=dispatch_failed {}", kv("message", job.error().message));
  wake_time_us = clock.wall_us() + kErrorPauseUs;
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
  ASSIGN_OR_RETURN(const std::vector<Job> active, impl_->store.jobs().list_active());
  for (const Job& job : active) {
    if (Status s = impl_->adopt(job); !s.ok()) return s;
  }
  return {};
}

void Dispatcher::start() {
  impl_->thread = std::jthread([impl = impl_.get()] { impl->run(); });
}

Job Dispatcher::explained(Job job) const {
  const std::optional<WaitingJob> waiting = waiting_job(brief_of(job));
  if (!waiting) return job;
  std::shared_ptr<const WaitReasons> waits;
  std::shared_ptr<const std::vector<Drained>> drained;
  {
    const MutexLock lock(impl_->mu);
    waits = impl_->waits;
    drained = impl_->drained;
  }
  if (std::optional<WaitReason> why = waits->find(*waiting, impl_->clock.wall_us())) {
    name_drained(waiting->asked, *drained, *why);
    job.reason = std::move(why->reason);
    job.message = std::move(why->message);
  }
  return job;
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
