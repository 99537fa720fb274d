// server/dispatch/attempts.h: manages attempts of jobs from their start to their end: those that
// this daemon started, on this host or in a cluster, and those that it took over from an earlier
// daemon.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "server/cluster/clusters.h"
#include "server/dispatch/dispatch_index.h"
#include "server/dispatch/dispatch_options.h"
#include "server/dispatch/train_task.h"
#include "server/inventory/inventory.h"
#include "server/processes/supervisor.h"
#include "server/store/store.h"

namespace trainyard::server {

/// Not thread-safe: only the dispatcher's thread uses it, and recover() before that thread exists.
/// The callbacks that it passes to other parts may run on any thread.
class Attempts {
 public:
  /// The daemon's parts that attempts use. They must outlive the attempts.
  struct Parts {
    Store& store;
    Supervisor& supervisor;
    Inventory& inventory;
    Files& files;
    const Clock& clock;
    const DispatcherOptions& options;
    const ClusterSetup& setup;  // its field `clusters` was moved into Parts::clusters
    std::span<const ClusterConfig> configs;
    Clusters& clusters;
    DispatchIndex& index;
    // Called on any thread when the process of an attempt has ended.
    std::function<void(const std::string& uid, int32_t attempt)> gone;
  };
  explicit Attempts(Parts parts) : parts_(std::move(parts)) {}
  /// Must be called before the first attempt. Callbacks of attempts lock this pointer, so that an
  /// attempt that ends late keeps this object alive.
  void set_owner(std::weak_ptr<Attempts> self) { self_ = std::move(self); }

  bool empty() const { return live_.empty(); }
  /// Starts what the scheduler decided. Returns errors of the store and of the disk. A job that was
  /// cancelled or deleted just now is no error.
  Status start(const StartDecision& decision, const std::vector<Device>& devices);
  /// Takes over the job's attempt, which an earlier daemon left behind.
  Status adopt(const Job& job);
  /// Removes the attempt, whose process has ended.
  void forget(const std::string& uid, int32_t attempt);

  /// Returns whether attempts have ended whose energy is not stored yet.
  bool has_unmetered() const { return !ended_.empty(); }
  /// Stores the energy that these attempts have used, by the counters of the devices as just read.
  void store_energy(const std::vector<Device>& devices);

  /// Requests the job's worker to stop, if it has one.
  void stop(const std::string& uid, const char* reason);
  /// Requests all workers of this host to stop within `grace_ms`.
  void drain(int64_t grace_ms);
  /// Stops the workers whose jobs have reached their time limit; these jobs then move to FAILED.
  void stop_overdue();
  /// Sends the jobs on those of the devices that were drained with `vacate` back to the queue.
  void vacate(const std::vector<Device>& devices);
  void make_room(const PreemptDecision& decision);

 private:
  struct Live {
    std::string task;
    int32_t attempt = 0;
    std::vector<std::string> devices;
    std::shared_ptr<TrainTask> owner;
    std::string cluster = {};  // the cluster that runs the attempt; empty: this host does
    bool leaves = false;       // it was requested to stop because its device is drained
    bool shares = false;       // the store has recorded that another job shared its device
    // The sum of its devices' energy counters at its start. Nothing if one of them has none, or if
    // an earlier daemon started the attempt.
    std::optional<double> energy_joules = {};
  };
  /// An attempt that has ended and had its devices to itself.
  struct Ended {
    std::string uid;
    int32_t attempt = 0;
    std::vector<std::string> devices;
    double energy_joules = 0;  // Live::energy_joules
  };
  void start_here(const Job& job, const Dataset& dataset, const std::string& nonce,
                  const std::vector<Device>& devices);
  void add(const Job& job, std::string task, std::shared_ptr<TrainTask> owner);
  /// Records in the store which jobs on these devices share one.
  void note_shared(const std::vector<std::string>& devices);
  Result<Dataset> dataset_of(const Job& job) const;
  std::shared_ptr<TrainTask> make_owner(const Job& job, const Dataset& dataset, bool adopted);
  /// Passes the attempt to its cluster. If `adopted`, it may have been submitted there already.
  void submit_to_cluster(const Job& job, const Attempt& attempt,
                         const std::shared_ptr<TrainTask>& owner, bool adopted);
  ClusterAttempt cluster_attempt(const Job& job, const Attempt& attempt, bool adopted) const;

  const Parts parts_;
  std::weak_ptr<Attempts> self_;
  const std::shared_ptr<HostTrouble> trouble_ = std::make_shared<HostTrouble>();
  std::unordered_map<std::string, Live> live_;  // by uid
  std::vector<Ended> ended_;
};

}  // namespace trainyard::server
