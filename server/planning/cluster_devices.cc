#include "server/planning/cluster_devices.h"

#include <algorithm>
#include <string>
#include <vector>

#include "src/base/join.h"
#include "src/base/text.h"

namespace trainyard::server {

const ClusterConfig* find_cluster(std::span<const ClusterConfig> clusters, std::string_view name) {
  const auto found = std::ranges::find(clusters, name, &ClusterConfig::name);
  return found == clusters.end() ? nullptr : &*found;
}

void resolve_cluster(std::span<const ClusterConfig> clusters, v1::Resources& resources,
                     Violations& violations) {
  if (resources.cluster().empty()) return;
  const ClusterConfig* cluster = find_cluster(clusters, resources.cluster());
  if (cluster == nullptr) {
    std::vector<std::string> names;
    for (const ClusterConfig& p : clusters) names.push_back(p.name);
    violations.add(
        "CLUSTER_NOT_FOUND", "resources.cluster",
        quoted_value(resources.cluster()) + " is not known, " +
            (names.empty() ? "and this server has no clusters; leave it out to train on the "
                             "server's own devices"
                           : "expected " + joined(names)));
    return;
  }
  if (resources.exclusive()) {
    violations.add("FIELD_CONFLICT", "resources.exclusive",
                   "true is not available in a cluster, whose scheduler allocates what a job "
                   "requests; leave it out");
  }
  const bool has_gpus = cluster->gpus_per_node > 0;
  if (resources.device() == v1::Resources::GPU && !has_gpus) {
    violations.add(
        "RESOURCES_IMPOSSIBLE", "resources.device",
        "gpu is not available in the cluster " + cluster->name + ", expected auto or cpu");
  } else if (resources.gpus() > std::max(1, cluster->gpus_per_node)) {
    violations.add("RESOURCES_IMPOSSIBLE", "resources.gpus",
                   std::to_string(resources.gpus()) + " is more than a node of the cluster " +
                       cluster->name + " has, expected 1.." +
                       std::to_string(std::max(1, cluster->gpus_per_node)));
  }
  if (resources.device() != v1::Resources::CPU && resources.device() != v1::Resources::GPU) {
    resources.set_device(has_gpus ? v1::Resources::GPU : v1::Resources::CPU);
  }
  if (!resources.has_threads()) resources.set_threads(cluster->cpus);
}

Devices devices_of(const ClusterConfig& cluster) {
  Devices devices;
  devices.cluster = cluster.name;
  Device& cpu = devices.devices.emplace_back();
  cpu.name = "devices/cpu";
  cpu.kind = DeviceKind::kCpu;
  cpu.model = "a node of the cluster " + cluster.name;
  cpu.memory_bytes = cluster.memory_bytes;
  cpu.cores = cluster.cpus;
  for (int32_t i = 0; i < cluster.gpus_per_node; ++i) {
    Device& gpu = devices.devices.emplace_back();
    gpu.name = "devices/gpu-" + std::to_string(i);
    gpu.kind = DeviceKind::kGpu;
    gpu.model = cluster.gpu_type.empty() ? "GPU of the cluster " + cluster.name : cluster.gpu_type;
    gpu.memory_bytes = cluster.gpu_memory_bytes;
  }
  return devices;
}

}  // namespace trainyard::server
