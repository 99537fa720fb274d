// server/dispatch/dispatcher.h: carries out the decisions of the scheduler.
//
// One thread keeps the index of waiting jobs (server/scheduler/queue.h) and of the devices with the
// jobs on them (fleet.h). It calls decide(), starts attempts, and requests workers to stop whose
// jobs are preempted. It reads the store once. From then on the store reports every change, so that
// a scheduling pass costs only as much as has changed. The thread wakes when a job changes, when a
// worker has ended, at the time that decide() returned, and at intervals while a job waits and
// other processes use a device. In an idle daemon it does not wake at all.
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

/// Thread-safe. Must be created before the first change of a job. All objects passed to the
/// constructor must outlive it.
class Dispatcher {
 public:
  Dispatcher(Store& store, Supervisor& supervisor, Inventory& inventory, Files& files,
             DispatcherOptions options, const Clock& clock = system_clock(),
             ClusterSetup clusters = {});
  ~Dispatcher();

  /// Takes over the attempts that an earlier daemon left behind. Attempts whose workers still run
  /// continue; the jobs of the others return to the queue shortly afterwards. Returns errors of the
  /// store.
  Status recover();
  /// Starts dispatching jobs.
  void start();
  /// Returns the job as the API shows it. The reason why a job waits is not stored; this sets it
  /// from the last scheduling pass.
  Job explained(Job job) const;
  /// Returns the first `count_max` waiting jobs. If `uid` is not empty, only that job, if it waits.
  QueueView queue(size_t count_max, const std::string& uid) const;
  /// Returns the number of other jobs on this job's devices, on the one with the most jobs; 0 if it
  /// occupies none.
  int32_t jobs_sharing_devices(const std::string& uid) const;
  /// Returns the use of each device. `now` must have just been read, because an idle daemon may
  /// have last read its devices long ago.
  std::vector<DeviceView> devices(std::span<const Device> now) const;
  /// Returns when a running job is expected to end, which its device's list and the queue show too.
  Range expected_end(const std::string& uid) const;
  const Clusters& clusters() const;
  /// Must be called after the devices have changed; requests a scheduling pass.
  void devices_changed();
  /// Starts no more jobs and requests every worker of this host to stop within `grace_ms`; their
  /// jobs return to the queue.
  void drain(int64_t grace_ms);
  /// Ends the dispatcher's thread: starts no more jobs and stops none.
  void halt();

 private:
  struct Impl;
  // Shared with the store's observer, which may still be called after the destructor.
  std::shared_ptr<Impl> impl_;
};

}  // namespace trainyard::server
