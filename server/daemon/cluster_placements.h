// server/daemon/cluster_placements.h: creates a Placement for each configured cluster.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "server/cluster/clusters.h"
#include "server/cluster/placement.h"
#include "server/config/cluster.h"
#include "src/base/result.h"

namespace trainyard::server {

/// Creates the placement that a cluster's configuration describes.
std::unique_ptr<Placement> make_placement(const ClusterConfig& cluster);

/// Error: CONFIG_INVALID for a configuration of which no placement can be created.
Status check_clusters(std::span<const ClusterConfig> clusters);

/// Returns each cluster with the placement that `make` returns for it.
std::vector<Clusters::Cluster> make_clusters(
    std::span<const ClusterConfig> clusters,
    const std::function<std::unique_ptr<Placement>(const ClusterConfig&)>& make = make_placement);

}  // namespace trainyard::server
