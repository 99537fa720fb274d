// server/service/pool_placements.h: the configured pools as placements.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "server/config/pool.h"
#include "server/placement/placement.h"
#include "server/supervisor/pools.h"
#include "src/base/result.h"

namespace trainyard::server {

/// The cluster that the pool's file describes.
std::unique_ptr<Placement> make_placement(const PoolConfig& pool);

/// CONFIG_INVALID for what no placement can be made of.
Status check_pools(std::span<const PoolConfig> pools);

/// Each with what `make` gives for it.
std::vector<Pools::Pool> make_pools(
    std::span<const PoolConfig> pools,
    const std::function<std::unique_ptr<Placement>(const PoolConfig&)>& make = make_placement);

}  // namespace trainyard::server
