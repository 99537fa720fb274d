#include "server/dispatch/dispatcher.h"

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

#include "server/cluster/cluster_queue.h"
#include "server/config/log.h"
#include "server/dispatch/deadlines.h"
#include "server/dispatch/outside_memory.h"
#include "server/dispatch/train_task.h"
#include "server/scheduler/fleet.h"
#include "server/scheduler/queue.h"
#include "server/scheduler/scheduler.h"
#include "server/scheduler/shares.h"
#include "src/base/mutex.h"
#include "src/base/sha256.h"

namespace trainyard::server {
namespace {

/// After an error of the store or of a start, so that a broken disk does not cause a busy loop.
constexpr int64_t kErrorPauseUs = 1'000'000;
/// While every slot is taken, new jobs only join the queue: they are handled together, so that a
/// flood of submits does not read the devices for each one.
constexpr int64_t kFullPauseUs = 250'000;

/// No job would find a place.
bool is_full(const Fleet& fleet) {
  return std::ranges::all_of(fleet.groups(), [](const Fleet::Group& g) { return g.free.empty(); });
}

/// Of an attempt: the same to every daemon.
std::string task_id(const Job& job) { return job.uid + "-" + std::to_string(job.attempt); }

std::vector<ClusterConfig> configs_of(const std::vector<Clusters::Cluster>& clusters) {
  std::vector<ClusterConfig> configs;
  for (const Clusters::Cluster& cluster : clusters) configs.push_back(cluster.config);
  return configs;
}

std::string last_segment(const std::string& name) { return name.substr(name.rfind('/') + 1); }

}  // namespace

struct Dispatcher::Impl : std::enable_shared_from_this<Dispatcher::Impl> {
  Impl(Store& s, Supervisor& sup, Inventory& inv, Files& f, DispatcherOptions o, const Clock& c,
       ClusterSetup p)
      : store(s),
        supervisor(sup),
        inventory(inv),
        files(f),
        options(std::move(o)),
        clock(c),
        door(std::move(p)),
        cluster_configs(configs_of(door.clusters)),
        clusters(sup, c, std::move(door.clusters), [this] { look_again(); }),
        cluster_queue(cluster_configs, clusters),
        shares(options.policy.half_life_us),
        policy(options.policy) {}

  struct Live {
    std::string task;
    int32_t attempt = 0;
    std::vector<std::string> devices;
    std::shared_ptr<TrainTask> owner;
    std::string cluster = {};  // that runs it; empty: this host does
    bool leaves = false;       // asked to, because its device is drained
    bool shares = false;       // the store knows that another job is, or was, on its device
  };
  /// What a running job has told since it was last placed.
  struct Pace {
    Range end;
    bool saved = false;  // a checkpoint
    int64_t time_us = 0;
  };

  void observe(std::span<const JobChange> changes);
  void run();
  void wait_for_work(MutexLock& lock) TRAINYARD_REQUIRES(mu);
  void forget(const std::vector<std::pair<std::string, int32_t>>& ended);
  /// Puts into the index what is not yet in it: at first what the store has, then `changes`.
  Status update_index(std::vector<JobBrief> changes) TRAINYARD_REQUIRES(index_mu);
  Status read_shares() TRAINYARD_REQUIRES(index_mu);
  void take(const JobBrief& job) TRAINYARD_REQUIRES(index_mu);
  void place(const std::string& uid) TRAINYARD_REQUIRES(index_mu);
  void take_paces() TRAINYARD_REQUIRES(index_mu);
  /// Stops the workers whose jobs have trained as long as they may: their next move is FAILED.
  void stop_overdue();
  void dispatch(std::vector<JobBrief> changes, bool drain_now);
  /// Sends the jobs on these devices back to the queue, as far as they are drained to that end.
  void vacate(const std::vector<Device>& devices);
  Decisions look(Devices devices, bool drain_now) TRAINYARD_REQUIRES(index_mu);
  void make_room(const PreemptDecision& decision);
  void leave(const std::string& uid);
  void start_job(const StartDecision& decision, const std::vector<Device>& devices);
  void start_attempt(const Job& job, const StartDecision& decision,
                     const std::vector<Device>& devices);
  /// Tells the store of jobs on these devices that are not alone there.
  void note_shared(const std::vector<std::string>& devices);
  Result<Dataset> dataset_of(const Job& job) const;
  std::shared_ptr<TrainTask> make_owner(const Job& job, const Dataset& dataset, bool adopted);
  Status adopt(const Job& job);
  /// The attempt is a cluster's, on its way there or, `adopted`, perhaps there already.
  void hand_over(const Job& job, const Attempt& attempt, const std::shared_ptr<TrainTask>& owner,
                 bool adopted);
  /// There may be room now.
  void look_again();

  Store& store;
  Supervisor& supervisor;
  Inventory& inventory;
  Files& files;
  const DispatcherOptions options;
  const Clock& clock;

  ClusterSetup door;  // its clusters have gone to `clusters`
  const std::vector<ClusterConfig> cluster_configs;

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
  std::unordered_map<std::string, Pace> paces TRAINYARD_GUARDED_BY(mu);  // by uid

  const std::shared_ptr<HostTrouble> trouble = std::make_shared<HostTrouble>();

  // The index: the truth is in the store, which tells of every change after its commit. Changed by
  // the dispatcher's thread alone, but for take_paces(); taken before `mu`, and never held across a
  // change of the store.
  mutable Mutex index_mu;
  bool indexed TRAINYARD_GUARDED_BY(index_mu) = false;
  Queue queue TRAINYARD_GUARDED_BY(index_mu);
  Fleet fleet TRAINYARD_GUARDED_BY(index_mu);
  Clusters clusters;
  ClusterQueue cluster_queue TRAINYARD_GUARDED_BY(index_mu);
  Shares shares TRAINYARD_GUARDED_BY(index_mu);
  Policy policy TRAINYARD_GUARDED_BY(index_mu);
  std::unordered_map<std::string, PlacedJob> active TRAINYARD_GUARDED_BY(index_mu);  // by uid
  std::set<std::string, std::less<>> leaving TRAINYARD_GUARDED_BY(index_mu);  // asked to stop
  OutsideMemory outside TRAINYARD_GUARDED_BY(index_mu);
  WaitReasons waits TRAINYARD_GUARDED_BY(index_mu);  // of the last look

  // Used only by the dispatcher's thread.
  std::unordered_map<std::string, Live> live;  // by uid
  Deadlines deadlines;
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
      if (change.state == JobState::kRunning) {  // looked at when there is another reason to
        Pace& pace = paces[change.uid];
        const Range end = end_of(change.remaining_low_s, change.remaining_s,
                                 change.remaining_high_s, change.time_us);
        if (end.known()) pace.end = end;
        pace.saved |= change.saved;
        pace.time_us = change.time_us;
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
        leave(uid);
      }
    }
    if (drain_now) {
      for (const auto& [uid, l] : live) {
        if (l.cluster.empty()) supervisor.stop(l.task, "drain", grace_ms);
      }
    }
    wake_time_us.reset();
    try {
      dispatch(std::move(changes), drain_now);
      stop_overdue();
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
    if (it == live.end() || it->second.attempt != attempt) continue;
    if (!it->second.cluster.empty()) clusters.forget(it->second.cluster, uid, attempt);
    live.erase(it);
    const MutexLock lock(index_mu);
    leaving.erase(uid);
    place(uid);
  }
}

// A change may be told before and after the first read has seen it. What is taken last is newest:
// until then a job may be offered that has just ended, which the store refuses to start.
Status Dispatcher::Impl::update_index(std::vector<JobBrief> changes) {
  if (!indexed) {
    // `changes` are not lost with an error: the next try reads what they left behind.
    queue.clear();
    cluster_queue.clear();
    fleet.clear_jobs();
    active.clear();
    shares.clear();
    deadlines.clear();
    if (Status s = store.jobs().read_unfinished([this](const JobBrief& job)
                                                    TRAINYARD_REQUIRES(index_mu) { take(job); });
        !s.ok()) {
      return s;
    }
    if (Status s = read_shares(); !s.ok()) return s;
  }
  indexed = false;  // until all changes are in it: after an exception it is read again
  for (const JobBrief& job : changes) take(job);
  indexed = true;
  return {};
}

// Jobs that run now have been counted from now on: here is what was before.
Status Dispatcher::Impl::read_shares() {
  if (!shares.enabled()) return {};
  const int64_t now_us = clock.wall_us();
  ASSIGN_OR_RETURN(const Uses uses, store.jobs().uses());
  for (const OwnerUse& use : uses.past) shares.add(use.owner, use.used, use.as_of_us, now_us);
  for (const AttemptUse& use : uses.running) {
    shares.add(use.owner, use.devices, use.start_us, now_us, now_us);
  }
  return {};
}

void Dispatcher::Impl::take(const JobBrief& job) {
  std::optional<WaitingJob> waiting = waiting_job(job);
  if (waiting && !waiting->cluster.empty()) {
    cluster_queue.put(std::move(*waiting));
  } else if (waiting) {
    queue.put(std::move(*waiting));
  } else {
    queue.remove(job.uid);
    cluster_queue.remove(job.uid);
  }
  const int64_t now_us = clock.wall_us();
  const auto before = active.find(job.uid);
  if (std::optional<PlacedJob> placed = placed_job(job)) {
    if (before == active.end()) {
      shares.change(job.owner, std::ssize(placed->devices), now_us);
    } else {  // a new priority, or it runs now: what was lost if it were killed stays
      placed->start_time_us = before->second.start_time_us;
      placed->saved_time_us = before->second.saved_time_us;
    }
    active.insert_or_assign(job.uid, std::move(*placed));
  } else if (before != active.end()) {
    shares.change(job.owner, -std::ssize(before->second.devices), now_us);
    active.erase(before);
  }
  place(job.uid);
  deadlines.note(job);
}

// A job may be finished while its process is still exiting: the place is free once that is gone.
void Dispatcher::Impl::place(const std::string& uid) {
  const auto on_device = active.find(uid);
  if (on_device != active.end()) {
    PlacedJob job = on_device->second;
    job.stopping = leaving.contains(uid);
    return fleet.place(std::move(job));
  }
  const PlacedJob* last = fleet.find(uid);
  const auto process = live.find(uid);
  if (process == live.end()) return fleet.leave(uid, clock.wall_us());
  PlacedJob job = last != nullptr ? *last : PlacedJob{uid, process->second.devices, uid};
  job.stopping = true;
  fleet.place(std::move(job));
}

void Dispatcher::Impl::take_paces() {
  std::unordered_map<std::string, Pace> told;
  {
    const MutexLock lock(mu);
    told.swap(paces);
  }
  for (const auto& [uid, pace] : told) {
    const auto job = active.find(uid);
    if (job == active.end() || !job->second.running) continue;
    if (pace.end.known()) job->second.end = pace.end;
    if (pace.saved) job->second.saved_time_us = pace.time_us;
    place(uid);
  }
}

Decisions Dispatcher::Impl::look(Devices devices, bool drain_now) {
  take_paces();
  for (Device& device : devices.devices) {
    device.others_bytes = outside.update(device, fleet, clock.steady_us());
  }
  fleet.set_devices(std::move(devices));
  policy.draining = drain_now;
  return decide(queue, fleet, shares, policy, clock.wall_us());
}

void Dispatcher::Impl::dispatch(std::vector<JobBrief> changes, bool drain_now) {
  full = false;
  look_time_us = clock.steady_us();
  Decisions decisions, to_clusters;
  std::vector<Device> devices;
  bool waiting = false;
  {
    MutexLock lock(index_mu);
    if (Status s = update_index(std::move(changes)); !s.ok()) {
      spdlog::error("event=dispatch_failed {}", kv("message", s.error().message));
      wake_time_us = clock.wall_us() + kErrorPauseUs;
      return;
    }
    waits = {};
    if (queue.empty() && cluster_queue.empty() && active.empty()) {
      // Idle from here on: return the heap's growth from the last jobs to the system.
      if (live.empty()) ::malloc_trim(0);
      return;
    }
  }
  Devices now = inventory.read();  // may take its time
  devices = now.devices;
  vacate(devices);
  {
    const MutexLock lock(index_mu);
    decisions = look(std::move(now), drain_now);
    to_clusters = cluster_queue.decide(shares, drain_now, clock.wall_us());
    waits = decisions.waits;
    waiting = !queue.empty();
  }
  wake_time_us = decisions.wake_time_us;
  if (to_clusters.wake_time_us) {
    wake_time_us = std::min(wake_time_us.value_or(kUnlimited), *to_clusters.wake_time_us);
  }
  if (waiting && std::ranges::any_of(
                     devices, [](const Device& d) { return d.busy || d.memory_used_bytes > 0; })) {
    // Nothing reports when another process ends, or gives memory back.
    wake_time_us = std::min(wake_time_us.value_or(std::numeric_limits<int64_t>::max()),
                            clock.wall_us() + options.look_again_us);
  }
  for (const PreemptDecision& preempt : decisions.preempts) make_room(preempt);
  for (const StartDecision& start : decisions.starts) start_job(start, devices);
  for (const StartDecision& start : to_clusters.starts) start_job(start, devices);
  if (decisions.more) wake_time_us = clock.wall_us();
  const MutexLock lock(index_mu);
  full = is_full(fleet);
}

void Dispatcher::Impl::stop_overdue() {
  for (const std::string& uid : deadlines.take_passed(clock.wall_us())) {
    if (const auto it = live.find(uid); it != live.end()) {
      spdlog::info("event=time_limit uid={} {}", uid, kv("task", it->second.task));
      supervisor.stop(it->second.task, "time limit");
      leave(uid);
    }
  }
  if (const std::optional<int64_t> next_us = deadlines.next()) {
    wake_time_us = std::min(wake_time_us.value_or(*next_us), *next_us);
  }
}

void Dispatcher::Impl::vacate(const std::vector<Device>& devices) {
  for (const Device& device : devices) {
    if (!device.vacate) continue;
    for (auto& [uid, l] : live) {
      if (l.leaves || std::ranges::find(l.devices, device.name) == l.devices.end()) continue;
      l.leaves = true;
      spdlog::info("event=device_vacated {} {}", kv("device", device.name), kv("task", l.task));
      supervisor.stop(l.task, "drain");
      leave(uid);
    }
  }
}

void Dispatcher::Impl::leave(const std::string& uid) {
  const MutexLock lock(index_mu);
  leaving.insert(uid);
  place(uid);
}

void Dispatcher::Impl::make_room(const PreemptDecision& decision) {
  const auto it = live.find(decision.uid);
  if (it == live.end()) return;
  spdlog::info("event=job_preempted uid={} {}", decision.uid, kv("for", decision.for_name));
  it->second.owner->make_room(decision.for_name);
  supervisor.stop(it->second.task, "preempt");
  leave(decision.uid);
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
  const std::string cluster(cluster_of(decision.devices));
  // A cluster's worker has no nonce before it enrols.
  const std::string nonce = cluster.empty() ? Supervisor::make_nonce() : std::string();
  Result<Job> started = store.jobs().start_attempt(job.uid, decision.devices,
                                                   nonce.empty() ? nonce : sha256_hex(nonce),
                                                   decision.reason, decision.message);
  if (!started.ok()) {  // just cancelled: that change wakes us again
    if (started.error().reason != "JOB_STATE_CONFLICT") pause(started.error());
    return;
  }
  spdlog::info("event=job_starting {} attempt={} {} {}", kv("job", job.name()), started->attempt,
               kv("device", started->devices_text()), kv("reason", decision.reason));
  if (!cluster.empty()) {
    const auto owner = make_owner(*started, *dataset, /*adopted=*/false);
    live.insert_or_assign(
        job.uid, Live{task_id(*started), started->attempt, decision.devices, owner, cluster});
    hand_over(*started, Attempt(), owner, /*adopted=*/false);
    const MutexLock lock(index_mu);
    return take(brief_of(*started));
  }
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
  const std::shared_ptr<TrainTask> owner = std::static_pointer_cast<TrainTask>(fresh.owner);
  std::string task = supervisor.start(std::move(fresh));
  live.insert_or_assign(job.uid, Live{std::move(task), started->attempt, decision.devices, owner});
  {
    const MutexLock lock(index_mu);
    take(brief_of(*started));  // the store tells of it too, some time
  }
  note_shared(decision.devices);
}

void Dispatcher::Impl::note_shared(const std::vector<std::string>& devices) {
  std::vector<std::string> uids;
  {
    const MutexLock lock(index_mu);
    for (const std::string& device : devices) {
      const auto jobs = fleet.jobs_on(device);
      if (jobs.size() < 2) continue;
      for (const PlacedJob* job : jobs) {
        const auto it = live.find(job->uid);
        if (it == live.end() || std::exchange(it->second.shares, true)) continue;
        uids.push_back(job->uid);
      }
    }
  }
  if (uids.empty()) return;
  store.jobs().note_shared(std::move(uids), [](const Status& noted) {
    if (!noted.ok()) spdlog::warn("event=sharing_not_noted {}", kv("what", noted.error().message));
  });
}

Result<Dataset> Dispatcher::Impl::dataset_of(const Job& job) const {
  // A stored spec has the full name.
  const auto ref = parse_dataset_ref(last_segment(job.spec.dataset().name()));
  return store.datasets().find(job.project, ref.value_or(DatasetRef{}));
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
      adopted,
      /*elsewhere=*/!cluster_of(job.devices).empty(),
      door.rates};
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
  return std::make_shared<TrainTask>(store, supervisor, clock, job, std::move(task), gone);
}

Status Dispatcher::Impl::adopt(const Job& job) {
  ASSIGN_OR_RETURN(const Attempt attempt, store.jobs().find_attempt(job.uid, job.attempt));
  ASSIGN_OR_RETURN(const Dataset dataset, dataset_of(job));  // an unfinished job holds it
  for (const std::string& device : job.devices) inventory.set_inherited(device, true);
  const std::string id = task_id(job);
  const std::shared_ptr<TrainTask> owner = make_owner(job, dataset, /*adopted=*/true);
  const std::string cluster(cluster_of(job.devices));
  live.insert_or_assign(job.uid, Live{id, job.attempt, job.devices, owner, cluster});
  if (cluster.empty()) {
    supervisor.adopt({id, "train " + job.name(), owner, attempt.nonce_digest, attempt.pid,
                      attempt.process_start});
  } else {
    hand_over(job, attempt, owner, /*adopted=*/true);
  }
  if (job.cancel_requested || job.pause_requested) {
    supervisor.stop(id, job.cancel_requested ? "cancel" : "pause");
  }
  return {};
}

void Dispatcher::Impl::hand_over(const Job& job, const Attempt& attempt,
                                 const std::shared_ptr<TrainTask>& owner, bool adopted) {
  const std::string cluster(cluster_of(job.devices));
  const auto config = std::ranges::find(cluster_configs, cluster, &ClusterConfig::name);
  ClusterAttempt to;
  to.uid = job.uid;
  to.attempt = job.attempt;
  to.job = job.name();
  to.owner = job.owner;
  to.priority = job.priority;
  to.handle = attempt.handle;
  to.may_exist = adopted;
  const v1::Forecast* const forecast = forecast_on(job.plan, job.device());
  if (forecast != nullptr && forecast->starts() <= 1) to.rest = brief_of(job).on_gpu;
  AttemptIntent& intent = to.intent;
  intent.task = task_id(job);
  intent.title = job.name();
  if (config != cluster_configs.end()) {
    intent.name = "ty-" + door.instance() + "-" + intent.task;
    intent.attach = door.attach();
    intent.certificate_pem = door.certificate_pem();
    intent.secret = door.secret(intent.task);
  }
  Supervisor::ElsewhereTask task;
  task.id = intent.task;
  task.kind = "train " + job.name();
  task.owner = owner;
  task.secret_digest = sha256_hex(intent.secret);
  task.nonce_digest = attempt.nonce_digest;
  task.withdraw = [impl = weak_from_this(), cluster, uid = job.uid,
                   number = job.attempt](const std::string& why) {
    spdlog::info("event=cluster_withdrawn {} uid={} {}", kv("cluster", cluster), uid,
                 kv("why", why));
    if (const auto self = impl.lock()) self->clusters.withdraw(cluster, uid, number);
  };
  if (config == cluster_configs.end()) {
    supervisor.expect(std::move(task));
    TaskEnd end;
    end.away = AwayEnd{"", "the server no longer has the cluster " + cluster};
    return supervisor.ended_elsewhere(intent.task, std::move(end));
  }
  const v1::Resources& resources = job.spec.resources();
  intent.nodes = nodes_of(resources);
  task.nodes = intent.nodes;
  intent.cpus = resources.has_threads() ? resources.threads() : config->cpus;
  intent.gpus_per_node = resources.device() == v1::Resources::GPU ? gpus_of(resources) : 0;
  intent.memory_bytes = config->memory_bytes;
  task.lease_ms = int64_t{config->lease_seconds} * 1000;
  to.found = [impl = weak_from_this(), cluster, uid = job.uid,
              number = job.attempt](const std::string& handle) {
    const auto self = impl.lock();
    if (!self) return;
    self->store.jobs().set_handle(uid, number, handle,
                                  "handed to the cluster " + cluster + " as " + handle,
                                  [uid](const Status& stored) {
                                    if (stored.ok())
                                      return;  // without it the next daemon looks for the name
                                    spdlog::warn("event=handle_not_stored uid={} {}", uid,
                                                 kv("message", stored.error().message));
                                  });
  };
  supervisor.expect(std::move(task));
  clusters.hand_over(cluster, std::move(to));
}

void Dispatcher::Impl::look_again() {
  {
    const MutexLock lock(mu);
    urgent = true;
  }
  changed.notify_one();
}

Dispatcher::Dispatcher(Store& store, Supervisor& supervisor, Inventory& inventory, Files& files,
                       DispatcherOptions options, const Clock& clock, ClusterSetup clusters)
    : impl_(std::make_shared<Impl>(store, supervisor, inventory, files, std::move(options), clock,
                                   std::move(clusters))) {
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
  impl_->clusters.stop();
}

Status Dispatcher::recover() {
  ASSIGN_OR_RETURN(const std::vector<Job> active, impl_->store.jobs().list_active());
  for (const Job& job : active) {
    if (Status s = impl_->adopt(job); !s.ok()) return s;
  }
  return {};
}

void Dispatcher::start() {
  const int64_t half_life_us = [this] {
    const MutexLock lock(impl_->index_mu);
    return impl_->policy.half_life_us;
  }();
  if (Status s = impl_->store.jobs().keep_uses(half_life_us); !s.ok()) {
    spdlog::warn("event=uses_not_kept {}", kv("message", s.error().message));
  }
  impl_->thread = std::jthread([impl = impl_.get()] { impl->run(); });
  impl_->clusters.start();
}

Job Dispatcher::explained(Job job) const {
  const bool of_cluster =
      !job.spec.resources().cluster().empty() && job.state == JobState::kStarting;
  if (job.state != JobState::kQueued && !of_cluster) return job;
  const MutexLock lock(impl_->index_mu);
  if (std::optional<WaitReason> why = impl_->cluster_queue.why(
          job, impl_->shares, impl_->policy.draining, impl_->clock.wall_us())) {
    job.reason = std::move(why->reason);
    job.message = std::move(why->message);
    return job;
  }
  if (std::optional<WaitReason> why = impl_->waits.find(impl_->queue, impl_->fleet, impl_->policy,
                                                        job.uid, impl_->clock.wall_us())) {
    job.reason = std::move(why->reason);
    job.message = std::move(why->message);
  }
  return job;
}

QueueView Dispatcher::queue(size_t count_max, const std::string& uid) const {
  const MutexLock lock(impl_->index_mu);
  impl_->take_paces();
  const int64_t now_us = impl_->clock.wall_us();
  QueueView view = view_queue(impl_->queue, impl_->fleet, impl_->shares, impl_->waits,
                              impl_->policy, now_us, count_max, uid);
  impl_->cluster_queue.add_to(view, impl_->shares, impl_->policy.draining, now_us, count_max, uid);
  return view;
}

const Clusters& Dispatcher::clusters() const { return impl_->clusters; }

int32_t Dispatcher::jobs_beside(const std::string& uid) const {
  const MutexLock lock(impl_->index_mu);
  const PlacedJob* const job = impl_->fleet.find(uid);
  size_t most = 1;
  if (job == nullptr) return 0;
  for (const std::string& device : job->devices) {
    most = std::max(most, impl_->fleet.jobs_on(device).size());
  }
  return static_cast<int32_t>(most) - 1;
}

std::vector<DeviceView> Dispatcher::devices(std::span<const Device> now) const {
  const MutexLock lock(impl_->index_mu);
  impl_->take_paces();
  std::vector<DeviceView> views;
  for (const Device& device : now) {
    DeviceView& view = views.emplace_back();
    view.others_bytes = impl_->outside.estimate(device, impl_->fleet);
    for (const PlacedJob* job : impl_->fleet.jobs_on(device.name)) view.jobs.push_back(*job);
  }
  return views;
}

void Dispatcher::devices_changed() { impl_->look_again(); }

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
