// server/dispatch/dispatch_index.h: what the scheduler decides on: the jobs that wait, the devices
// with the jobs on them, the owners' shares.
//
// The truth is in the store, which tells of every change after its commit. The dispatcher's thread
// alone changes the index, but for the paces of running jobs, which wait in front of it. Its lock
// is never held across a change of the store.
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
#include "server/dispatch/outside_memory.h"
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

  /// Takes over changes of jobs, in the order of their commits; at first, and after an error, what
  /// the store has.
  Status update(JobStore& store, std::span<const JobBrief> changes);
  /// The job as it is now.
  void take(const JobBrief& job);
  /// How a running job gets on, to be looked at when there is another reason to. On any thread.
  void note_pace(const JobChange& change);

  // The process of an attempt. A job may be finished while its process is still exiting: its place
  // is free once that is gone.
  void add_process(const std::string& uid, const std::vector<std::string>& devices);
  void remove_process(const std::string& uid);
  /// The process was asked to stop.
  void leave(const std::string& uid);

  /// True if no job waits and none runs.
  bool is_idle() const;
  /// Whether no job would find a place.
  bool is_full() const;

  struct Pass {
    Decisions here, to_clusters;
    bool waiting = false;  // some job waits for a device of this host
  };
  /// One scheduling pass over the devices as they are now.
  Pass decide(Devices devices, bool draining);
  /// Forgets why jobs wait.
  void clear_waits();
  /// The jobs on those of the devices that have several.
  std::vector<std::string> sharing(std::span<const std::string> devices) const;

  /// Running jobs whose time limit has come; each is reported once.
  std::vector<std::string> take_overdue();
  /// When the next one comes, by wall time.
  std::optional<int64_t> next_deadline() const;

  int64_t half_life_us() const;

  // Dispatcher's methods of the same names return these; dispatcher.h describes them.
  Job explained(Job job) const;
  QueueView queue(size_t count_max, const std::string& uid);
  int32_t jobs_beside(const std::string& uid) const;
  std::vector<DeviceView> devices(std::span<const Device> now);

 private:
  struct Pace {
    Range end;
    bool saved = false;  // a checkpoint
    int64_t time_us = 0;
  };
  Status read(JobStore& store) TRAINYARD_REQUIRES(mu_);
  Status read_shares(JobStore& store) TRAINYARD_REQUIRES(mu_);
  void put(const JobBrief& job) TRAINYARD_REQUIRES(mu_);
  void place(const std::string& uid) TRAINYARD_REQUIRES(mu_);
  void take_paces() TRAINYARD_REQUIRES(mu_);

  const Clock& clock_;
  mutable Mutex mu_;
  bool complete_ TRAINYARD_GUARDED_BY(mu_) = false;  // all that the store has is here
  Queue queue_ TRAINYARD_GUARDED_BY(mu_);
  ClusterQueue cluster_queue_ TRAINYARD_GUARDED_BY(mu_);
  Fleet fleet_ TRAINYARD_GUARDED_BY(mu_);
  Shares shares_ TRAINYARD_GUARDED_BY(mu_);
  Policy policy_ TRAINYARD_GUARDED_BY(mu_);
  Deadlines deadlines_ TRAINYARD_GUARDED_BY(mu_);
  OutsideMemory outside_ TRAINYARD_GUARDED_BY(mu_);
  WaitReasons waits_ TRAINYARD_GUARDED_BY(mu_);  // of the last pass
  // Jobs that hold devices by what the store says; and devices of jobs that have a process. Both by
  // uid.
  std::unordered_map<std::string, PlacedJob> active_ TRAINYARD_GUARDED_BY(mu_);
  std::unordered_map<std::string, std::vector<std::string>> processes_ TRAINYARD_GUARDED_BY(mu_);
  std::set<std::string, std::less<>> leaving_ TRAINYARD_GUARDED_BY(mu_);  // asked to stop

  Mutex pace_mu_;                                                               // taken after mu_
  std::unordered_map<std::string, Pace> paces_ TRAINYARD_GUARDED_BY(pace_mu_);  // by uid
};

}  // namespace trainyard::server
