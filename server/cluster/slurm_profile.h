// server/cluster/slurm_profile.h: how a Slurm cluster is asked. All of it is the
// operator's; nothing of it comes from a job.
#pragma once

#include <cstdint>
#include <string>

#include "src/base/result.h"

namespace trainyard::server {

struct SlurmProfile {
  std::string name;       // of the cluster
  std::string commands;   // folder of sbatch and the others; empty: PATH
  std::string cluster;    // ClusterName that must answer; empty: the first that does
  std::string partition;  // empty, like the next three: Slurm's default
  std::string account;
  std::string qos;
  std::string reservation;
  std::string gres_type;             // --gres=gpu:TYPE:N; empty: gpu:N
  int32_t gpus_per_node = 0;         // the most an attempt may have; check() asks Slurm for these
  std::string worker;                // path of trainyard-worker on the nodes
  std::string cache;                 // folder on the nodes for data
  int64_t cache_bytes = 0;           // of data in it; 0: the worker's default
  int64_t time_limit_s = 0;          // of an attempt that asks for none; 0: the partition's
  int64_t extra_memory_bytes = 0;    // added to what an attempt asks for
  std::string output = "/dev/null";  // of the script on the node; may have Slurm's %j
  int64_t command_timeout_ms = 30'000;
};

/// Whether it can be used: each text is what a Slurm option or a path may be. The error names the
/// field as `slurm.<name>.<field>`.
Status validate(const SlurmProfile& profile);

}  // namespace trainyard::server
