// server/service/pool_forecast.h: what plans say of pools: how long a job takes there.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "server/forecast/pool_rates.h"
#include "trainyard/v1/job_service.pb.h"
#include "trainyard/v1/job_spec.pb.h"

namespace trainyard::server {

/// Of a job whose spec names its pool, with its threads and its precision. `plan_key` is that of
/// its plan.
PoolQuery pool_query(const v1::JobSpec& spec, std::shared_ptr<const RunWork> work,
                     const std::string& plan_key, int64_t plan_bytes);

/// Adds the forecast of a job that asks for a pool, and says it.
void add_pool_forecast(PoolRates& rates, const PoolQuery& query, v1::RunPlan& plan);

/// A job that would run here, and what it would do on a pool.
struct PoolCandidate {
  v1::JobSpec spec;  // resolved for the pool
  const PoolConfig* pool = nullptr;
};
/// The pools on which such a job could run as it is, by what their files say. `threads_named`: by
/// the user. None of a job that asks for more than one device.
std::vector<PoolCandidate> pools_for(std::span<const PoolConfig> pools, const v1::JobSpec& spec,
                                     bool threads_named);

}  // namespace trainyard::server
