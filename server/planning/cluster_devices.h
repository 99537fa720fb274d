// server/planning/cluster_devices.h: what a job that asks for a cluster is planned for. Pure.
#pragma once

#include <span>
#include <string_view>

#include "server/config/cluster.h"
#include "src/base/violations.h"
#include "src/planning/devices.h"
#include "trainyard/v1/job_spec.pb.h"

namespace trainyard::server {

/// Null if there is none of this name.
const ClusterConfig* find_cluster(std::span<const ClusterConfig> clusters, std::string_view name);

/// Fills in what a spec leaves to its cluster: the device, and the threads. CLUSTER_NOT_FOUND,
/// FIELD_CONFLICT and RESOURCES_IMPOSSIBLE name the field. Nothing happens to a spec without a
/// cluster.
void resolve_cluster(std::span<const ClusterConfig> clusters, v1::Resources& resources,
                     Violations& violations);

/// A node of the cluster as a machine that runs one job.
Devices devices_of(const ClusterConfig& cluster);

}  // namespace trainyard::server
