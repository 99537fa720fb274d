// server/dispatch/dispatcher.h: carries out what the scheduler decides.
//
// One thread keeps the waiting jobs in order (server/scheduler/queue.h) and the devices with the
// jobs on them (fleet.h), asks decide(), starts attempts, and asks workers to stop whose jobs make
// room for others. It reads the store once; from then on the store tells of every change, so that a
// look costs what changed. It wakes when a job changes, when a worker is gone, at the time that
// decide() named, and now and then while a job waits beside what other processes hold; an idle
// daemon does not wake at all.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "server/cluster/clusters.h"
#include "server/dispatch/dispatch_options.h"
#include "server/inventory/inventory.h"
#include "server/processes/supervisor.h"
#include "server/scheduler/queue_view.h"
#include "server/scheduler/scheduler.h"
#include "server/store/store.h"
#include "src/base/clock.h"
#include "src/base/files.h"

namespace trainyard::server {

/// Thread-safe. Create it before the first change of a job. Everything that it is given must
/// outlive it.
class Dispatcher {
 public:
  Dispatcher(Store& store, Supervisor& supervisor, Inventory& inventory, Files& files,
             DispatcherOptions options, const Clock& clock = system_clock(),
             ClusterSetup clusters = {});
  ~Dispatcher();

  /// Takes over the attempts that an earlier daemon left behind: those whose workers still run go
  /// on, the jobs of the others return to the queue shortly. Errors of the store.
  Status recover();
  /// Starts dispatching jobs.
  void start();
  /// The job as people see it: why a waiting one waits is nowhere stored, but told from the last
  /// look at the queue.
  Job explained(Job job) const;
  /// The first `count_max` waiting jobs, or with a uid that one, if it waits.
  QueueView queue(size_t count_max, const std::string& uid) const;
  /// Other jobs on the devices of this one, on the fullest of them; 0 if it is on none.
  int32_t jobs_beside(const std::string& uid) const;
  /// Each of the devices, as just read: an idle daemon has not looked at them for long.
  std::vector<DeviceView> devices(std::span<const Device> now) const;
  const Clusters& clusters() const;
  /// The devices have changed: looks at the queue again.
  void devices_changed();
  /// Starts nothing more and asks every worker of this host to stop within `grace_ms`; their jobs
  /// return to the queue.
  void drain(int64_t grace_ms);
  /// Starts nothing more and stops nothing.
  void halt();

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;  // also held by the store's observer, which may be called last
};

}  // namespace trainyard::server
