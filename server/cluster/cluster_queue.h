// server/cluster/cluster_queue.h: the jobs that wait for clusters, and the reasons shown to users.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/cluster/clusters.h"
#include "server/config/cluster.h"
#include "server/scheduler/cluster.h"
#include "server/scheduler/project_devices.h"
#include "server/scheduler/queue.h"
#include "server/scheduler/queue_view.h"
#include "server/store/job.h"

namespace trainyard::server {

/// Not thread-safe.
class ClusterQueue {
 public:
  /// `configs` and `clusters` must outlive this object.
  ClusterQueue(std::span<const ClusterConfig> configs, const Clusters& clusters)
      : configs_(configs), clusters_(clusters) {}

  void put(WaitingJob job);
  void remove(std::string_view uid);
  void clear() { waiting_.clear(); }
  bool empty() const;
  /// Replaces the lists of devices and clusters that projects may use.
  void set_project_devices(ProjectDevices lists) { project_devices_ = std::move(lists); }

  /// Decides which jobs to submit to which cluster now. The result's `waits` has the quotas with
  /// these jobs.
  Decisions decide(const Shares& shares, bool draining, int64_t now_us, Quotas quotas) const;
  /// Returns why the job waits, in this queue or in the cluster's. Returns nothing for a job
  /// without a cluster, or if the job's own state explains more.
  std::optional<WaitReason> why(const Job& job, const Shares& shares, const Quotas& quotas,
                                bool draining, int64_t now_us) const;
  /// Appends the jobs that wait for clusters to `view`, for each cluster first those in the
  /// cluster's own queue. Adds jobs until `view` has `count_max`; if `uid` is not empty, adds only
  /// that job.
  void add_to(QueueView& view, const Shares& shares, const Quotas& quotas, bool draining,
              int64_t now_us, size_t count_max, const std::string& uid) const;

 private:
  std::optional<ClusterState> state_of(const std::string& cluster, bool draining) const;

  std::span<const ClusterConfig> configs_;
  const Clusters& clusters_;
  ProjectDevices project_devices_;
  std::map<std::string, Queue, std::less<>> waiting_;  // by cluster
};

}  // namespace trainyard::server
