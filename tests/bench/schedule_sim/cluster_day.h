// tests/bench/schedule_sim/cluster_day.h: a day of a cluster: the daemon's own decisions, its
// bookkeeping of clusters, its supervisor and its store on a disk, with a cluster that is played
// and time that is simulated.
//
// The cluster has nodes of one kind and starts what waits in its queue in order. A job goes through
// all that a real one does: submitted, decided on, its attempt stored, handed over, seen waiting
// and granted, enrolled, attached, started, done, its model registered. Not played are processes
// and the network (tests/bench/cluster_link_bench.cc has that), and reports between the start and
// the end.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace trainyard::sim {

struct ClusterDayOptions {
  std::filesystem::path folder;  // of the store; made, and left to the caller
  int nodes = 1000;
  double jobs_per_node_day = 10;
  double hours = 24;
  int backlog = 0;  // jobs that wait from the beginning, beside those that fill the nodes
  int owners = 40;
  int32_t waiting_max = 16;
  int32_t poll_seconds = 10;
  double half_life_hours = 24;    // of fair share; 0: off
  double node_mtbf_hours = 2000;  // of one node
  uint64_t seed = 1;
};

/// Of many times that one thing took.
struct Spread {
  int64_t count = 0;
  double p50 = 0, p99 = 0, most = 0, sum = 0;
};

struct ClusterDay {
  // What happened.
  int64_t submitted = 0, succeeded = 0, attempts = 0, node_failures = 0, looks = 0;
  int64_t live_most = 0, waiting_most = 0;
  double hours = 0;  // simulated
  // What a part of the daemon took, CPU time of all its threads, in microseconds.
  Spread decide_us;  // which jobs are handed over: at each change
  Spread look_us;    // one look at the cluster: sightings, verdicts; without the commands
  Spread why_us;     // why one waiting job waits, as a list asks for each
  Spread job_us;     // all else that a job costs from submit to its model: store, supervisor
  // The store, wall time in microseconds.
  Spread commit_us;
  int64_t store_bytes = 0;    // of its files at the end
  int64_t written_bytes = 0;  // to the disk, with the log
  // What the cluster's commands would print.
  int64_t squeue_bytes_look = 0;        // at most, of one look
  int64_t rss_bytes = 0;                // more than before the first job
  std::vector<std::string> violations;  // none, or the simulation is worth nothing
};

ClusterDay simulate_cluster_day(const ClusterDayOptions& options);

}  // namespace trainyard::sim
