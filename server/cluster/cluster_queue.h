// server/cluster/cluster_queue.h: the jobs that wait for clusters, and what people are told of
// them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/cluster/clusters.h"
#include "server/config/cluster.h"
#include "server/scheduler/cluster.h"
#include "server/scheduler/queue.h"
#include "server/scheduler/queue_view.h"
#include "server/store/job.h"

namespace trainyard::server {

/// Not thread-safe.
class ClusterQueue {
 public:
  /// Both outlive this.
  ClusterQueue(std::span<const ClusterConfig> configs, const Clusters& clusters)
      : configs_(configs), clusters_(clusters) {}

  void put(WaitingJob job);
  void remove(std::string_view uid);
  void clear() { waiting_.clear(); }
  bool empty() const;

  /// Decides which jobs are handed to which cluster now.
  Decisions decide(const Shares& shares, bool draining, int64_t now_us) const;
  /// Why the job waits: here, or in the cluster once it was handed over. Nothing for one that is in
  /// no cluster, that has its node, or of which its own reason says more.
  std::optional<WaitReason> why(const Job& job, const Shares& shares, bool draining,
                                int64_t now_us) const;
  /// Adds the jobs that wait for clusters, behind those that are there: of each cluster at first
  /// those in the cluster's own queue. At most `count_max` in all, or with a uid that one.
  void add_to(QueueView& view, const Shares& shares, bool draining, int64_t now_us,
              size_t count_max, const std::string& uid) const;

 private:
  std::optional<ClusterState> state_of(const std::string& cluster, bool draining) const;

  std::span<const ClusterConfig> configs_;
  const Clusters& clusters_;
  std::map<std::string, Queue, std::less<>> waiting_;  // by cluster
};

}  // namespace trainyard::server
