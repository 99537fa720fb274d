// server/scheduler/cluster.h: which jobs are handed to a cluster next.
//
// A cluster has a scheduler of its own, which knows its nodes and its other users. What waits there
// is out of our hands: priorities that change and fair shares would come too late. So few are
// handed over at a time; the others wait here, in the order of scheduler.h, which goes by what is
// true when a place becomes free. Pure, as decide() is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/scheduler/queue.h"
#include "server/scheduler/scheduler.h"
#include "server/scheduler/shares.h"
#include "server/store/job.h"

namespace trainyard::server {

/// Jobs that are looked at for the place of one, which is told to people.
inline constexpr size_t kClusterLookedAtMax = 2000;

/// The cluster of devices such as clusters/slurm; empty for the server's own.
std::string_view cluster_of(const std::vector<std::string>& devices);

/// A cluster as of one look.
struct ClusterState {
  std::string name;
  int32_t waiting_max = 1;  // in the cluster's queue at a time
  int32_t waiting = 0;      // there now, or on their way: handed over, and no node yet
  bool draining = false;    // the server is stopping
  // The cluster takes nothing with what its file says; not empty: in its words.
  std::string refused = {};
  int64_t refused_left_us = 0;  // until a job is tried again
};

/// `waiting` are the jobs that ask for this cluster, and nothing else.
Decisions decide_cluster(const Queue& waiting, const ClusterState& cluster, const Shares& shares,
                         int64_t now_us);

/// Why a job has not been handed over; nothing as WaitReasons::find. A cluster that is no longer
/// configured is null. `ahead` jobs are handed over before it; nothing: more than were looked at.
std::optional<WaitReason> cluster_reason(const WaitingJob& job, const ClusterState* cluster,
                                         std::optional<int64_t> ahead, int64_t now_us);

/// When a job is tried on a cluster that refuses: "in 15 s", "now".
std::string when_tried(int64_t refused_left_us);

/// How many of `waiting` are handed over before the job, which is one of them; nothing: more than
/// kClusterLookedAtMax, or it rests.
std::optional<int64_t> cluster_place(const Queue& waiting, const WaitingJob& job,
                                     const Shares& shares, int64_t now_us);

/// The first `count_max` of `waiting` in the order in which they are handed over, by uid.
std::vector<const WaitingJob*> cluster_order(const Queue& waiting, const Shares& shares,
                                             int64_t now_us, size_t count_max);

}  // namespace trainyard::server
