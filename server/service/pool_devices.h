// server/service/pool_devices.h: what a job that asks for a pool is planned for. Pure.
#pragma once

#include <span>
#include <string_view>

#include "server/config/pool.h"
#include "server/inventory/inventory.h"
#include "src/base/violations.h"
#include "trainyard/v1/job_spec.pb.h"

namespace trainyard::server {

/// Null if there is none of this name.
const PoolConfig* find_pool(std::span<const PoolConfig> pools, std::string_view name);

/// Fills in what a spec leaves to its pool: the device, and the threads. POOL_NOT_FOUND,
/// FIELD_CONFLICT and RESOURCES_IMPOSSIBLE name the field. Nothing happens to a spec without a
/// pool.
void resolve_pool(std::span<const PoolConfig> pools, v1::Resources& resources,
                  Violations& violations);

/// A node of the pool as a machine that runs one job.
Devices devices_of(const PoolConfig& pool);

}  // namespace trainyard::server
