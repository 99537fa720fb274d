// server/planning/cluster_devices.h: the devices for which a job that requests a cluster is
// planned. Pure.
#pragma once

#include <span>
#include <string_view>

#include "server/config/cluster.h"
#include "src/base/violations.h"
#include "src/planning/devices.h"
#include "trainyard/v1/job_spec.pb.h"

namespace trainyard::server {

/// Returns the cluster with this name; null if there is none.
const ClusterConfig* find_cluster(std::span<const ClusterConfig> clusters, std::string_view name);

/// Fills in the device and the threads that the spec leaves to its cluster. CLUSTER_NOT_FOUND,
/// FIELD_CONFLICT and RESOURCES_IMPOSSIBLE name the field. Does nothing for a spec without a
/// cluster.
void resolve_cluster(std::span<const ClusterConfig> clusters, v1::Resources& resources,
                     Violations& violations);

/// Returns the devices of one node of the cluster, which runs one job.
Devices devices_of(const ClusterConfig& cluster);

}  // namespace trainyard::server
