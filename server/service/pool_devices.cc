#include "server/service/pool_devices.h"

#include <algorithm>
#include <string>
#include <vector>

#include "src/base/join.h"
#include "src/base/text.h"

namespace trainyard::server {

const PoolConfig* find_pool(std::span<const PoolConfig> pools, std::string_view name) {
  const auto found = std::ranges::find(pools, name, &PoolConfig::name);
  return found == pools.end() ? nullptr : &*found;
}

void resolve_pool(std::span<const PoolConfig> pools, v1::Resources& resources,
                  Violations& violations) {
  if (resources.pool().empty()) return;
  const PoolConfig* pool = find_pool(pools, resources.pool());
  if (pool == nullptr) {
    std::vector<std::string> names;
    for (const PoolConfig& p : pools) names.push_back(p.name);
    violations.add(
        "POOL_NOT_FOUND", "resources.pool",
        quoted_value(resources.pool()) + " is not known, " +
            (names.empty() ? "and this server has no pools; leave it out to train on the "
                             "server's own devices"
                           : "expected " + joined(names)));
    return;
  }
  if (resources.exclusive()) {
    violations.add(
        "FIELD_CONFLICT", "resources.exclusive",
        "true is not for a pool, whose scheduler gives a job what it asks for; leave it out");
  }
  const bool has_gpus = pool->gpus_per_node > 0;
  if (resources.device() == v1::Resources::GPU && !has_gpus) {
    violations.add("RESOURCES_IMPOSSIBLE", "resources.device",
                   "gpu is not available in the pool " + pool->name + ", expected auto or cpu");
  } else if (resources.gpus() > std::max(1, pool->gpus_per_node)) {
    violations.add("RESOURCES_IMPOSSIBLE", "resources.gpus",
                   std::to_string(resources.gpus()) + " is more than a node of the pool " +
                       pool->name + " has, expected 1.." +
                       std::to_string(std::max(1, pool->gpus_per_node)));
  }
  if (resources.device() != v1::Resources::CPU && resources.device() != v1::Resources::GPU) {
    resources.set_device(has_gpus ? v1::Resources::GPU : v1::Resources::CPU);
  }
  if (!resources.has_threads()) resources.set_threads(pool->cpus);
}

Devices devices_of(const PoolConfig& pool) {
  Devices devices;
  devices.pool = pool.name;
  Device& cpu = devices.devices.emplace_back();
  cpu.name = "devices/cpu";
  cpu.kind = DeviceKind::kCpu;
  cpu.model = "a node of the pool " + pool.name;
  cpu.memory_bytes = pool.memory_bytes;
  cpu.cores = pool.cpus;
  for (int32_t i = 0; i < pool.gpus_per_node; ++i) {
    Device& gpu = devices.devices.emplace_back();
    gpu.name = "devices/gpu-" + std::to_string(i);
    gpu.kind = DeviceKind::kGpu;
    gpu.model = pool.gpu_type.empty() ? "GPU of the pool " + pool.name : pool.gpu_type;
    gpu.memory_bytes = pool.gpu_memory_bytes;
  }
  return devices;
}

}  // namespace trainyard::server
