// server/cluster/slurm_profile.h: the settings for a Slurm cluster. The operator sets all of them;
// none comes from a job.
#pragma once

#include <cstdint>
#include <string>

#include "src/base/result.h"

namespace trainyard::server {

struct SlurmProfile {
  std::string name;       // the cluster's name in this daemon
  std::string commands;   // folder of Slurm's commands; empty: PATH is searched
  std::string cluster;    // expected ClusterName; empty: that of the first response
  std::string partition;  // empty, like the next three: Slurm's default
  std::string account;
  std::string qos;
  std::string reservation;
  std::string gres_type;  // --gres=gpu:TYPE:N; empty: gpu:N
  // The most GPUs per node that an attempt may request; check() tests a request for so many.
  int32_t gpus_per_node = 0;
  std::string worker;                // path of trainyard-worker on the nodes
  std::string cache;                 // folder on the nodes for data
  int64_t cache_bytes = 0;           // limit for the cached data; 0: the worker's default
  int64_t time_limit_s = 0;          // for an attempt without a limit; 0: the partition's
  int64_t extra_memory_bytes = 0;    // added to the memory that an attempt requests
  std::string output = "/dev/null";  // the script's output file on the node; may contain Slurm's %j
  int64_t command_timeout_ms = 30'000;
};

/// Checks that each text may be the value of a Slurm option or a path. The error names the field as
/// `slurm.<name>.<field>`.
Status validate(const SlurmProfile& profile);

}  // namespace trainyard::server
