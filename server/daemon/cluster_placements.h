// server/daemon/cluster_placements.h: the configured clusters as placements.
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

/// The cluster that a file describes.
std::unique_ptr<Placement> make_placement(const ClusterConfig& cluster);

/// CONFIG_INVALID for what no placement can be made of.
Status check_clusters(std::span<const ClusterConfig> clusters);

/// Each with what `make` gives for it.
std::vector<Clusters::Cluster> make_clusters(
    std::span<const ClusterConfig> clusters,
    const std::function<std::unique_ptr<Placement>(const ClusterConfig&)>& make = make_placement);

}  // namespace trainyard::server
