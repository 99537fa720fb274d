// server/planning/sharding_choice.h: the sharding plans of a job in the memory of this server's
// devices, with the times of its steps where these are known.
#pragma once

#include <functional>
#include <optional>
#include <stop_token>
#include <string>

#include "proto/convert/spec.h"
#include "server/planning/memory_fit.h"
#include "src/base/result.h"
#include "src/data/schema.h"
#include "src/plan/device_traits.h"
#include "src/planning/devices.h"
#include "src/planning/sharding_plans.h"

namespace trainyard::server {

/// A step of one job on a device, by measured rates alone (Forecaster::step_time,
/// ClusterRates::step_time).
using StepTimeOn = std::function<Result<TimeRange>(const Device& device, const RunWork& work)>;

/// A job, and where it is to fit.
struct ShardingQuestion {
  const v1::JobSpec& spec;  // with its precision and threads
  const EngineSpec& engine;
  const DatasetSchema& schema;
  const Devices& devices;
  const MemoryRoom& room;
  DeviceTraits traits;  // that it is planned with
  StepTimeOn step_time;
  bool all = false;  // else no more than a choice takes
};
struct FoundShardings {
  ShardingPlans shardings;
  std::string basis;  // JobPlan.sharding_plans_basis
};
/// CANCELLED/STOPPED soon after `stop` is requested.
Result<FoundShardings> find_sharding_plans(const ShardingQuestion& question,
                                           const std::stop_token& stop);

/// Writes the chosen sharding plan into both forms of the spec of a job that does not fit as it is
/// written. `as_written` is its plan. Nothing if no sharding plan fits. What it costs is for the
/// caller to add.
std::optional<v1::FitChoice> choose_fit(v1::JobSpec& spec, EngineSpec& engine,
                                        const ShardingPlans& shardings,
                                        const v1::RunPlan& as_written, const MemoryRoom& room,
                                        DeviceTraits traits);

/// All rows, for who asked for them.
void set_sharding_plans(const FoundShardings& found, const MemoryRoom& room, v1::JobPlan& plan);
/// What no row has, once it was measured for the one that is planned. Nothing without rows.
void add_workspace(int64_t workspace_bytes, v1::JobPlan& plan);

}  // namespace trainyard::server
