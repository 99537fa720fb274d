// server/dispatch/dispatch_index.h: the data from which the scheduler decides: the waiting jobs,
// the devices with the jobs on them, the owners' shares.
//
// The index is a copy of data in the store, which reports every change after its commit. Only the
// dispatcher's thread changes the index. Any thread may report the pace of a running job, which is
// buffered and applied before the next use. The lock is never held across a change of the store.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "server/cluster/cluster_queue.h"
#include "server/cluster/clusters.h"
#include "server/dispatch/deadlines.h"
#include "server/dispatch/other_processes_memory.h"
#include "server/scheduler/fleet.h"
#include "server/scheduler/queue.h"
#include "server/scheduler/queue_view.h"
#include "server/scheduler/scheduler.h"
#include "server/scheduler/shares.h"
#include "server/store/store.h"
#include "src/base/clock.h"
#include "src/base/mutex.h"

namespace trainyard::server {

/// Thread-safe.
class DispatchIndex {
 public:
  /// The index keeps references to all of these.
  DispatchIndex(const Policy& policy, std::span<const ClusterConfig> configs,
                const Clusters& clusters, const Clock& clock)
      : clock_(clock),
        cluster_queue_(configs, clusters),
        shares_(policy.half_life_us),
        policy_(policy) {}

  /// Applies changes of jobs, in the order of their commits. The first call, and each call after an
  /// error, first reads all jobs from the store.
  Status update(JobStore& store, std::span<const JobBrief> changes);
  /// Replaces the entry of one job.
  void take(const JobBrief& job);
  /// Buffers the progress of a running job until the next pass or query. May be called on any
  /// thread.
  void note_pace(const JobChange& change);

  // These add and remove the process of an attempt. A job may be finished while its process is
  // still exiting; its devices are free once the process has ended.
  void add_process(const std::string& uid, const std::vector<std::string>& devices);
  void remove_process(const std::string& uid);
  /// Notes that the process was requested to stop.
  void leave(const std::string& uid);

  /// Returns true if no job waits and none runs.
  bool is_idle() const;
  /// Returns whether no device accepts another job.
  bool is_full() const;

  struct Pass {
    Decisions here, to_clusters;
    bool waiting = false;  // a job waits for a device of this host
  };
  /// Replaces the lists of devices that projects may use, for the next pass.
  void set_project_devices(const ProjectDevices& lists);
  /// Makes one scheduling pass over the current devices with the quotas as they are used now.
  Pass decide(Devices devices, Quotas quotas, bool draining);
  /// Discards the reasons why jobs wait.
  void clear_waits();
  /// Returns the uids of the jobs on those of the devices that have several jobs.
  std::vector<std::string> sharing(std::span<const std::string> devices) const;

  /// Returns the uids of running jobs that have reached their time limit; each is returned once.
  std::vector<std::string> take_overdue();
  /// Returns the wall-clock time at which the next running job reaches its time limit.
  std::optional<int64_t> next_deadline() const;

  int64_t half_life_us() const;

  // Dispatcher's methods of the same names return these; dispatcher.h describes them.
  Job explained(Job job);
  Range expected_end(const std::string& uid);
  QueueView queue(size_t count_max, const std::string& uid);
  int32_t jobs_sharing_devices(const std::string& uid) const;
  std::vector<DeviceView> devices(std::span<const Device> now);

 private:
  struct Pace {
    Range end;
    bool saved = false;  // a checkpoint was saved
    int64_t time_us = 0;
  };
  Status read(JobStore& store) TRAINYARD_REQUIRES(mu_);
  Status read_shares(JobStore& store) TRAINYARD_REQUIRES(mu_);
  void put(const JobBrief& job) TRAINYARD_REQUIRES(mu_);
  void place(const std::string& uid) TRAINYARD_REQUIRES(mu_);
  void take_paces() TRAINYARD_REQUIRES(mu_);
  /// Returns waits_ with the times of the present projection.
  const WaitReasons& waits_now(int64_t now_us) TRAINYARD_REQUIRES(mu_);

  const Clock& clock_;
  mutable Mutex mu_;
  // All unfinished jobs of the store are in the index.
  bool complete_ TRAINYARD_GUARDED_BY(mu_) = false;
  Queue queue_ TRAINYARD_GUARDED_BY(mu_);
  ClusterQueue cluster_queue_ TRAINYARD_GUARDED_BY(mu_);
  Fleet fleet_ TRAINYARD_GUARDED_BY(mu_);
  Shares shares_ TRAINYARD_GUARDED_BY(mu_);
  Policy policy_ TRAINYARD_GUARDED_BY(mu_);
  Deadlines deadlines_ TRAINYARD_GUARDED_BY(mu_);
  OtherProcessesMemory others_memory_ TRAINYARD_GUARDED_BY(mu_);
  WaitReasons waits_ TRAINYARD_GUARDED_BY(mu_);  // from the last pass
  WaitReasons projected_waits_ TRAINYARD_GUARDED_BY(mu_);
  int64_t projected_us_ TRAINYARD_GUARDED_BY(mu_) = 0;  // their time; 0: waits_ has changed
  // Jobs that occupy devices according to the store, and the devices of jobs that have a process;
  // both by uid.
  std::unordered_map<std::string, PlacedJob> active_ TRAINYARD_GUARDED_BY(mu_);
  std::unordered_map<std::string, std::vector<std::string>> processes_ TRAINYARD_GUARDED_BY(mu_);
  std::set<std::string, std::less<>> stopping_ TRAINYARD_GUARDED_BY(mu_);  // requested to stop

  Mutex pace_mu_;                                                               // taken after mu_
  std::unordered_map<std::string, Pace> paces_ TRAINYARD_GUARDED_BY(pace_mu_);  // by uid
};

}  // namespace trainyard::server
