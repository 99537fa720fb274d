// server/config/cluster.h: the configuration of a cluster that runs jobs. Each cluster has a YAML
// file, whose path is a value of the setting `cluster`. Only the operator writes this file.
// Projects refer to a cluster by its name, so that no text of a project becomes part of a command.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "src/base/result.h"

namespace trainyard::server {

struct ClusterConfig {
  std::filesystem::path file;  // the file from which it was read
  std::string name;          // value of `resources.cluster`: lower-case letters, digits and dashes
  std::string kind;          // always "slurm"
  int32_t cpus = 1;          // CPUs of a job that does not set its threads
  int64_t memory_bytes = 0;  // memory of a job on its node; 0: the cluster's default
  // GPUs of each node; 0: jobs train on the CPU.
  int32_t gpus_per_node = 0;
  std::string gpu_type;            // the cluster's name of the type (gres); empty: any
  int64_t gpu_memory_bytes = 0;    // memory of one GPU; 0: unknown
  int64_t time_limit_seconds = 0;  // limit of one attempt in the cluster; 0: the partition's
  int32_t waiting_max = 4;       // the largest number of this server's jobs in the cluster's queue
  int32_t poll_seconds = 10;     // interval of queries of the cluster's queue
  int32_t lease_seconds = 1800;  // how long a worker continues without contact to the daemon
  std::filesystem::path worker;  // path of trainyard-worker on the nodes
  std::filesystem::path cache;   // a folder on the local disks of the nodes
  int64_t cache_bytes = int64_t{50} << 30;
  bool measure_nodes = true;  // workers measure their node for forecasts after their job has ended
  double price_per_hour = 0;  // price of a GPU, or of a node if it has no GPUs; 0: unknown

  // The settings from here on are for Slurm.

  // The folder of sbatch, squeue and scancel; empty: searched in PATH.
  std::filesystem::path commands;
  std::string slurm_cluster;  // required ClusterName of the Slurm controller; empty: any
  std::string partition, account, qos, reservation;
  std::string output;  // output file of the job script; empty: /dev/null
};

/// Error: CONFIG_INVALID, which names the line and the accepted values. `origin` names the file in
/// messages.
Result<ClusterConfig> parse_cluster(std::string_view text, const std::string& origin);
/// Reads the file. Error: CONFIG_INVALID, also if the file cannot be read.
Result<ClusterConfig> load_cluster(const std::filesystem::path& file);

}  // namespace trainyard::server
