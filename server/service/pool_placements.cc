#include "server/service/pool_placements.h"

#include "server/placement/slurm_placement.h"
#include "server/placement/slurm_profile.h"

namespace trainyard::server {
namespace {

SlurmProfile profile_of(const PoolConfig& pool) {
  SlurmProfile profile;
  profile.name = pool.name;
  profile.commands = pool.commands.string();
  profile.cluster = pool.cluster;
  profile.partition = pool.partition;
  profile.account = pool.account;
  profile.qos = pool.qos;
  profile.reservation = pool.reservation;
  profile.gres_type = pool.gpu_type;
  profile.gpus_per_node = pool.gpus_per_node;
  profile.worker = pool.worker.string();
  profile.cache = pool.cache.string();
  profile.cache_bytes = pool.cache_bytes;
  profile.time_limit_s = pool.time_limit_seconds;
  if (!pool.output.empty()) profile.output = pool.output;
  return profile;
}

}  // namespace

std::unique_ptr<Placement> make_placement(const PoolConfig& pool) {
  return std::make_unique<SlurmPlacement>(profile_of(pool));
}

Status check_pools(std::span<const PoolConfig> pools) {
  for (const PoolConfig& pool : pools) {
    if (Status s = validate(profile_of(pool)); !s.ok()) {
      return make_error(ErrorCode::kInvalidArgument, "CONFIG_INVALID",
                        pool.file.string() + ": " + s.error().message);
    }
  }
  return {};
}

std::vector<Pools::Pool> make_pools(
    std::span<const PoolConfig> pools,
    const std::function<std::unique_ptr<Placement>(const PoolConfig&)>& make) {
  std::vector<Pools::Pool> made;
  for (const PoolConfig& pool : pools) made.push_back({pool, make(pool)});
  return made;
}

}  // namespace trainyard::server
