#include "server/dispatch/dispatcher.h"

#include <malloc.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "server/config/log.h"
#include "server/dispatch/attempts.h"
#include "server/dispatch/dispatch_index.h"
#include "src/base/mutex.h"

namespace trainyard::server {
namespace {

/// The pause after an error of the store or of a start, so that a broken disk does not cause a busy
/// loop.
constexpr int64_t kErrorPauseUs = 1'000'000;
/// While every slot is taken, new jobs only join the queue: they are handled together, so that a
/// flood of submits does not read the devices for each one.
constexpr int64_t kFullPauseUs = 250'000;

std::vector<ClusterConfig> configs_of(const std::vector<Clusters::Cluster>& clusters) {
  std::vector<ClusterConfig> configs;
  for (const Clusters::Cluster& cluster : clusters) configs.push_back(cluster.config);
  return configs;
}

}  // namespace

struct Dispatcher::Impl {
  Impl(Store& s, Supervisor& supervisor, Inventory& inv, Files& files, DispatcherOptions o,
       const Clock& c, ClusterSetup p)
      : store(s),
        inventory(inv),
        options(std::move(o)),
        clock(c),
        setup(std::move(p)),
        cluster_configs(configs_of(setup.clusters)),
        clusters(supervisor, c, std::move(setup.clusters), [this] { request_pass(); }),
        index(options.policy, cluster_configs, clusters, c),
        attempts({store, supervisor, inventory, files, clock, options, setup, cluster_configs,
                  clusters, index,
                  [this](const std::string& uid, int32_t attempt) { note_gone(uid, attempt); }}) {}

  /// Requests to the dispatcher's thread since its last pass.
  struct Requests {
    bool dirty = true;    // a job changed; true at first, so that the first pass considers all jobs
    bool urgent = false;  // a request other than a new job
    bool stopping = false;
    bool draining = false;  // stays true from the first drain request on
    int64_t drain_grace_ms = 0;
    // Workers to stop: uid of the job, reason.
    std::vector<std::pair<std::string, const char*>> to_stop;
    std::vector<std::pair<std::string, int32_t>> gone;  // ended processes: uid, attempt
    std::vector<JobBrief> changes;                      // in the order of their commits
  };

  void observe(std::span<const JobChange> changes);
  void note_gone(const std::string& uid, int32_t attempt);
  /// Requests a scheduling pass, because there may be room now.
  void request_pass();

  void run();
  Requests wait_for_requests();
  void dispatch(const std::vector<JobBrief>& changes, bool draining);
  void start(const std::vector<StartDecision>& decisions, const std::vector<Device>& devices);
  /// Makes the thread wake at this time or earlier.
  void wake_at(int64_t time_us) {
    wake_time_us = std::min(wake_time_us.value_or(time_us), time_us);
  }

  Store& store;
  Inventory& inventory;
  const DispatcherOptions options;
  const Clock& clock;
  ClusterSetup setup;  // its field `clusters` was moved into the member `clusters`
  const std::vector<ClusterConfig> cluster_configs;

  Mutex mu;
  CondVar changed;
  Requests requests TRAINYARD_GUARDED_BY(mu);

  Clusters clusters;
  DispatchIndex index;

  // The following members are used only by the dispatcher's thread, and by recover() before it
  // starts.
  Attempts attempts;
  std::optional<int64_t> wake_time_us;
  bool full = false;         // no slot was free after the last pass
  int64_t pass_time_us = 0;  // when the last pass began
  std::jthread thread;
};

void Dispatcher::Impl::observe(std::span<const JobChange> changes) {
  bool wake = false;
  {
    const MutexLock lock(mu);
    for (const JobChange& change : changes) {
      const bool stops = change.cancel_requested || change.pause_requested;
      if (stops && is_active(change.state)) {
        requests.to_stop.emplace_back(change.uid, change.cancel_requested ? "cancel" : "pause");
        requests.urgent = true;
      }
      if (change.reschedules) requests.changes.push_back(*change.reschedules);
      if (change.state == JobState::kRunning) index.note_pace(change);
      wake = wake || change.reschedules || stops;
    }
    requests.dirty = requests.dirty || wake;
  }
  if (wake) changed.notify_one();
}

void Dispatcher::Impl::note_gone(const std::string& uid, int32_t attempt) {
  {
    const MutexLock lock(mu);
    requests.gone.emplace_back(uid, attempt);
    requests.urgent = true;
  }
  changed.notify_one();
}

void Dispatcher::Impl::request_pass() {
  {
    const MutexLock lock(mu);
    requests.urgent = true;
  }
  changed.notify_one();
}

void Dispatcher::Impl::run() {
  for (;;) {
    const Requests asked = wait_for_requests();
    if (asked.stopping) return;
    for (const auto& [uid, attempt] : asked.gone) attempts.forget(uid, attempt);
    for (const auto& [uid, reason] : asked.to_stop) attempts.stop(uid, reason);
    if (asked.draining) attempts.drain(asked.drain_grace_ms);
    wake_time_us.reset();
    try {
      if (attempts.has_unmetered()) attempts.store_energy(inventory.read().devices);
      dispatch(asked.changes, asked.draining);
      attempts.stop_overdue();
      if (const std::optional<int64_t> next_us = index.next_deadline()) wake_at(*next_us);
    } catch (const std::exception& e) {
      spdlog::error("event=dispatch_fault {}", kv("what", e.what()));
      wake_time_us = clock.wall_us() + kErrorPauseUs;
    }
  }
}

Dispatcher::Impl::Requests Dispatcher::Impl::wait_for_requests() {
  MutexLock lock(mu);
  const auto any = [this]() TRAINYARD_REQUIRES(mu) { return requests.dirty || requests.urgent; };
  if (wake_time_us) {
    const int64_t wait_us = std::max<int64_t>(0, *wake_time_us - clock.wall_us());
    changed.wait_for(lock, std::chrono::microseconds(wait_us), any);
  } else {
    changed.wait(lock, any);
  }
  if (full) {
    const int64_t rest_us = pass_time_us + kFullPauseUs - clock.steady_us();
    changed.wait_for(lock, std::chrono::microseconds(rest_us),
                     [this]() TRAINYARD_REQUIRES(mu) { return requests.urgent; });
  }
  Requests taken = std::exchange(requests, {});
  requests.dirty = false;
  requests.stopping = taken.stopping;
  requests.draining = taken.draining;
  requests.drain_grace_ms = taken.drain_grace_ms;
  return taken;
}

void Dispatcher::Impl::dispatch(const std::vector<JobBrief>& changes, bool draining) {
  full = false;
  pass_time_us = clock.steady_us();
  if (Status s = index.update(store.jobs(), changes); !s.ok()) {
    spdlog::error("event=dispatch_failed {}", kv("message", s.error().message));
    wake_time_us = clock.wall_us() + kErrorPauseUs;
    return;
  }
  index.clear_waits();
  if (index.is_idle()) {
    // The daemon is idle from here on, so it returns free heap memory to the system.
    if (attempts.empty()) ::malloc_trim(0);
    return;
  }
  Devices now = inventory.read();  // may be slow
  const std::vector<Device> devices = now.devices;
  attempts.vacate(devices);
  Result<std::vector<DeviceQuota>> quotas = store.quotas().device_quotas(clock.wall_us());
  if (!quotas.ok()) {  // without the quotas nothing may start
    spdlog::error("event=dispatch_failed {}", kv("message", quotas.error().message));
    wake_time_us = clock.wall_us() + kErrorPauseUs;
    return;
  }
  index.set_project_devices(options.project_devices());
  const DispatchIndex::Pass pass =
      index.decide(std::move(now), Quotas(*std::move(quotas)), draining);
  wake_time_us = pass.here.wake_time_us;
  if (pass.to_clusters.wake_time_us) wake_at(*pass.to_clusters.wake_time_us);
  const auto may_change = [](const Device& d) {
    return d.busy || d.health == DeviceHealth::kUnknown || d.memory_used_bytes > 0;
  };
  if (pass.waiting && std::ranges::any_of(devices, may_change)) {
    // Nothing reports when another process ends or frees memory, or when the driver works again.
    wake_at(clock.wall_us() + options.pass_interval_us);
  }
  for (const PreemptDecision& preempt : pass.here.preempts) attempts.make_room(preempt);
  start(pass.here.starts, devices);
  start(pass.to_clusters.starts, devices);
  if (pass.here.more) wake_time_us = clock.wall_us();
  full = index.is_full();
}

void Dispatcher::Impl::start(const std::vector<StartDecision>& decisions,
                             const std::vector<Device>& devices) {
  for (const StartDecision& decision : decisions) {
    if (Status s = attempts.start(decision, devices); !s.ok()) {
      spdlog::error("event=attempt_start_failed uid={} {}", decision.uid,
                    kv("message", s.error().message));
      wake_time_us = clock.wall_us() + kErrorPauseUs;
    }
  }
}

Dispatcher::Dispatcher(Store& store, Supervisor& supervisor, Inventory& inventory, Files& files,
                       DispatcherOptions options, const Clock& clock, ClusterSetup clusters)
    : impl_(std::make_shared<Impl>(store, supervisor, inventory, files, std::move(options), clock,
                                   std::move(clusters))) {
  impl_->attempts.set_owner(std::shared_ptr<Attempts>(impl_, &impl_->attempts));
  store.observe([impl = impl_](std::span<const JobChange> changes) { impl->observe(changes); });
}

Dispatcher::~Dispatcher() { halt(); }

void Dispatcher::halt() {
  {
    const MutexLock lock(impl_->mu);
    impl_->requests.stopping = true;
    impl_->requests.urgent = true;
  }
  impl_->changed.notify_all();
  if (impl_->thread.joinable()) impl_->thread.join();
  impl_->clusters.stop();
}

Status Dispatcher::recover() {
  ASSIGN_OR_RETURN(const std::vector<Job> active, impl_->store.jobs().list_active());
  for (const Job& job : active) {
    if (Status s = impl_->attempts.adopt(job); !s.ok()) return s;
  }
  return {};
}

void Dispatcher::start() {
  if (Status s = impl_->store.jobs().keep_uses(impl_->index.half_life_us()); !s.ok()) {
    spdlog::warn("event=usage_not_stored {}", kv("message", s.error().message));
  }
  impl_->thread = std::jthread([impl = impl_.get()] { impl->run(); });
  impl_->clusters.start();
}

Job Dispatcher::explained(Job job) const { return impl_->index.explained(std::move(job)); }

QueueView Dispatcher::queue(size_t count_max, const std::string& uid) const {
  return impl_->index.queue(count_max, uid);
}

Range Dispatcher::expected_end(const std::string& uid) const {
  return impl_->index.expected_end(uid);
}

const Clusters& Dispatcher::clusters() const { return impl_->clusters; }

int32_t Dispatcher::jobs_sharing_devices(const std::string& uid) const {
  return impl_->index.jobs_sharing_devices(uid);
}

std::vector<DeviceView> Dispatcher::devices(std::span<const Device> now) const {
  return impl_->index.devices(now);
}

void Dispatcher::devices_changed() { impl_->request_pass(); }

void Dispatcher::drain(int64_t grace_ms) {
  {
    const MutexLock lock(impl_->mu);
    impl_->requests.draining = true;
    impl_->requests.drain_grace_ms = grace_ms;
    impl_->requests.urgent = true;
  }
  impl_->changed.notify_one();
}

}  // namespace trainyard::server
