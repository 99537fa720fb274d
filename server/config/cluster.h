// server/config/cluster.h: a cluster that takes jobs: one YAML file for each, named by the setting
// `cluster`. What it says of the cluster is the operator's alone: a project names it, and nothing
// of a project's text becomes part of a command.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "src/base/result.h"

namespace trainyard::server {

struct ClusterConfig {
  std::filesystem::path file;  // where it was read
  std::string name;            // as in `resources.cluster`: lower case, digits, dashes
  std::string kind;            // slurm
  int32_t cpus = 1;            // of a job that does not set its threads
  int64_t memory_bytes = 0;    // of a job on its node; 0: as the cluster gives it
  // Of each node; 0: jobs train on its CPU.
  int32_t gpus_per_node = 0;
  std::string gpu_type;            // in the cluster's own words (gres); empty: any
  int64_t gpu_memory_bytes = 0;    // of one; 0: unknown
  int64_t time_limit_seconds = 0;  // of one start in the cluster; 0: the partition's
  int32_t waiting_max = 4;         // jobs in the cluster's own queue at a time
  int32_t poll_seconds = 10;       // between looks at it
  int32_t lease_seconds = 1800;    // a worker goes on for so long without the daemon
  std::filesystem::path worker;    // trainyard-worker, on the nodes
  std::filesystem::path cache;     // a folder on the nodes' own disks
  int64_t cache_bytes = int64_t{50} << 30;
  bool measure_nodes = true;  // workers whose job is over measure their node, for forecasts
  double price_per_hour = 0;  // of a GPU, or where it has none of a node; 0: none is set
  // Slurm
  std::filesystem::path commands;  // the folder of sbatch, squeue and scancel; empty: as in PATH
  std::string slurm_cluster;       // ClusterName that must answer; empty: the one that does
  std::string partition, account, qos, reservation;
  std::string output;  // of the job script; empty: /dev/null
};

/// CONFIG_INVALID names the line and what would be accepted. `origin` names the file in messages.
Result<ClusterConfig> parse_cluster(std::string_view text, const std::string& origin);
/// Reads the file. CONFIG_INVALID too if it cannot be read.
Result<ClusterConfig> load_cluster(const std::filesystem::path& file);

}  // namespace trainyard::server
