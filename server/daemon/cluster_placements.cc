#include "server/daemon/cluster_placements.h"

#include "server/cluster/slurm_placement.h"
#include "server/cluster/slurm_profile.h"

namespace trainyard::server {
namespace {

SlurmProfile profile_of(const ClusterConfig& cluster) {
  SlurmProfile profile;
  profile.name = cluster.name;
  profile.commands = cluster.commands.string();
  profile.cluster = cluster.slurm_cluster;
  profile.partition = cluster.partition;
  profile.account = cluster.account;
  profile.qos = cluster.qos;
  profile.reservation = cluster.reservation;
  profile.gres_type = cluster.gpu_type;
  profile.gpus_per_node = cluster.gpus_per_node;
  profile.worker = cluster.worker.string();
  profile.cache = cluster.cache.string();
  profile.cache_bytes = cluster.cache_bytes;
  profile.time_limit_s = cluster.time_limit_seconds;
  if (!cluster.output.empty()) profile.output = cluster.output;
  return profile;
}

}  // namespace

std::unique_ptr<Placement> make_placement(const ClusterConfig& cluster) {
  return std::make_unique<SlurmPlacement>(profile_of(cluster));
}

Status check_clusters(std::span<const ClusterConfig> clusters) {
  for (const ClusterConfig& cluster : clusters) {
    if (Status s = validate(profile_of(cluster)); !s.ok()) {
      return make_error(ErrorCode::kInvalidArgument, "CONFIG_INVALID",
                        cluster.file.string() + ": " + s.error().message);
    }
  }
  return {};
}

std::vector<Clusters::Cluster> make_clusters(
    std::span<const ClusterConfig> clusters,
    const std::function<std::unique_ptr<Placement>(const ClusterConfig&)>& make) {
  std::vector<Clusters::Cluster> made;
  for (const ClusterConfig& cluster : clusters) made.push_back({cluster, make(cluster)});
  return made;
}

}  // namespace trainyard::server
