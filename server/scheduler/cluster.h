// server/scheduler/cluster.h: chooses the jobs to submit to a cluster next.
//
// A cluster has a scheduler of its own, which knows its nodes and its other users. Once a job waits
// there, the server can no longer apply changed priorities or fair shares to it. So only a few jobs
// are submitted to the cluster at a time. The others wait in the server's queue, in the order of
// scheduler.h, which is evaluated when a place in the cluster's queue becomes free. All functions
// are pure, like decide().
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/scheduler/project_devices.h"
#include "server/scheduler/queue.h"
#include "server/scheduler/scheduler.h"
#include "server/scheduler/shares.h"
#include "server/store/job.h"

namespace trainyard::server {

/// The largest number of jobs that cluster_position() walks to find the position of a job.
inline constexpr size_t kClusterPositionsMax = 2000;

/// Returns the cluster's name in a device name such as clusters/slurm; empty for the server's own
/// devices.
std::string_view cluster_of(const std::vector<std::string>& devices);

/// The state of a cluster at one scheduling pass.
struct ClusterState {
  std::string name;
  int32_t waiting_max = 1;  // the largest number of this server's jobs in the cluster's queue
  // This server's jobs that were submitted to the cluster and have no node yet.
  int32_t waiting = 0;
  bool draining = false;  // the server is stopping
  // The cluster's message if it refuses all jobs because of its configuration file; empty if it
  // accepts jobs.
  std::string refused = {};
  int64_t next_trial_in_us = 0;         // time until the next trial of one job
  ProjectDevices project_devices = {};  // the lists of the projects that have one
};

/// Decides which jobs to submit to the cluster. `waiting` contains only the jobs that request this
/// cluster. Those of projects that may not use it stay there. The result's `waits` has the quotas
/// with the jobs that are submitted.
Decisions decide_cluster(const Queue& waiting, const ClusterState& cluster, const Shares& shares,
                         int64_t now_us, Quotas quotas = {});

/// Returns why a job has not been submitted to the cluster; nothing in the cases of
/// WaitReasons::find. `cluster` is null if it is no longer configured. `ahead` is the number of
/// jobs before this one; nothing if there are more than kClusterPositionsMax.
std::optional<WaitReason> cluster_reason(const WaitingJob& job, const ClusterState* cluster,
                                         std::optional<int64_t> ahead, int64_t now_us);

/// Returns when one job is tried again on a cluster that refuses jobs, as text: "in 15 s", "now".
std::string next_trial_text(int64_t next_trial_in_us);

/// Returns the number of jobs in `waiting` that come before `job`, which is one of them. Nothing if
/// there are more than kClusterPositionsMax, or if the job is in a retry pause.
std::optional<int64_t> cluster_position(const Queue& waiting, const WaitingJob& job,
                                        const Shares& shares, int64_t now_us);

/// Returns the first `count_max` jobs of `waiting` in the order in which they will be submitted to
/// the cluster.
std::vector<const WaitingJob*> cluster_order(const Queue& waiting, const Shares& shares,
                                             int64_t now_us, size_t count_max);

}  // namespace trainyard::server
