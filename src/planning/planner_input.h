// src/planning/planner_input.h: the job and the machine that the planner (planner.h) is given.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "src/base/result.h"
#include "src/forecast/forecast.h"
#include "src/job/recipe.h"
#include "src/models/model_spec.h"
#include "src/planning/devices.h"
#include "src/planning/memory_room.h"
#include "src/planning/sharding_plans.h"

namespace trainyard {

/// A job as its spec says it, before it has devices.
struct JobToPlan {
  ModelSpec model;
  Recipe recipe;  // with batch_is_open: batch_size is what the chosen size is a multiple of
  bool batch_is_open = false;
  FitFreedom free;  // the planner may choose these for the job to fit
  DeviceWish wish = DeviceWish::kAuto;
  int32_t gpus = 1;   // of each node
  int32_t nodes = 1;  // that train it together
  // Refuses a way to shard that other fields of the spec forbid, such as a cluster's
  // (ShardingQuery).
  std::function<Status(Shard)> check_shard;

  int64_t ranks() const { return int64_t{gpus} * nodes; }
};

/// A step of a job on a device, by measured rates alone. NOT_FOUND/RATE_UNKNOWN says why there are
/// none.
using StepTimeOn = std::function<Result<TimeRange>(const Device& device, const RunWork& work)>;

/// A machine, or a node of a cluster, and what is known of it.
struct Machine {
  Devices devices;
  int64_t cpu_limit_bytes = 0;  // of the CPU's memory for jobs; 0: no bound besides its size
  // The memory of running jobs. It is asked for only if a job does not fit beside all that is in
  // use. None: no job runs.
  std::function<Result<std::vector<HeldMemory>>()> held;
  StepTimeOn step_time;  // there always is one
};

}  // namespace trainyard
