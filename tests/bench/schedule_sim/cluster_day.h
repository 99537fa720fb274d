// tests/bench/schedule_sim/cluster_day.h: a day of a cluster with the daemon's own decisions, its
// bookkeeping of clusters, its supervisor and its store on a disk. The cluster and the time are
// simulated.
//
// The cluster has nodes of one kind and starts queued attempts in order. A job goes through all
// stages of a real one: submitted, decided on, its attempt stored, submitted to the cluster, seen
// waiting and granted, enrolled, attached, started, done, its model registered. Processes and the
// network are not simulated (tests/bench/cluster_link_bench.cc measures these), nor are reports
// between the start and the end.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace trainyard::sim {

struct ClusterDayOptions {
  std::filesystem::path folder;  // the folder of the store; created by the run, and not deleted
  int nodes = 1000;
  double jobs_per_node_day = 10;
  double hours = 24;
  int backlog = 0;  // jobs that wait from the beginning, in addition to those that fill the nodes
  int owners = 40;
  int32_t waiting_max = 16;
  int32_t poll_seconds = 10;
  double half_life_hours = 24;    // half-life of fair share; 0: no fair share
  double node_mtbf_hours = 2000;  // mean time between failures of one node
  uint64_t seed = 1;
};

/// Statistics of many durations of one operation.
struct Spread {
  int64_t count = 0;
  double p50 = 0, p99 = 0, most = 0, sum = 0;
};

struct ClusterDay {
  // Counts of events.
  int64_t submitted = 0, succeeded = 0, attempts = 0, node_failures = 0, queries = 0;
  int64_t live_most = 0, waiting_most = 0;
  double hours = 0;  // simulated
  // The daemon's cost by operation: CPU time of all its threads, in microseconds.
  Spread decide_us;  // deciding which jobs are submitted to the cluster, at each change
  Spread query_us;   // one scheduling pass over the cluster, without the commands
  Spread why_us;     // explaining why one job waits, as a list does for each job
  Spread job_us;     // all other costs of a job from submit to its model: store, supervisor
  // The store: wall time in microseconds.
  Spread commit_us;
  int64_t store_bytes = 0;    // size of the store's files at the end
  int64_t written_bytes = 0;  // bytes written to the disk, including the log
  // The output of the cluster's commands.
  int64_t squeue_bytes_query = 0;       // the largest of one pass
  int64_t rss_bytes = 0;                // resident memory, minus that before the first job
  std::vector<std::string> violations;  // must be empty for a valid simulation
};

ClusterDay simulate_cluster_day(const ClusterDayOptions& options);

}  // namespace trainyard::sim
