// src/planning/planner_input.h: the job and the machine that are the input of planner.h.
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

/// A job as its spec describes it, before devices are assigned.
struct JobToPlan {
  ModelSpec model;
  Recipe recipe;  // if batch_is_open, the chosen batch size is a multiple of recipe.batch_size
  bool batch_is_open = false;  // the spec has `batch_size: auto`
  FitFreedom free;             // the fields that the planner may choose to make the job fit
  DeviceWish wish = DeviceWish::kAuto;
  int32_t gpus = 1;   // number of GPUs on each node
  int32_t nodes = 1;  // the number of nodes that train the job together
  // Refuses a value of `shard` that other fields of the spec forbid, such as the cluster
  // (ShardingQuery::check_shard).
  std::function<Status(Shard)> check_shard;

  int64_t ranks() const { return int64_t{gpus} * nodes; }
};

/// Predicts the time of a job's step on a device from measured rates. Error: NOT_FOUND/RATE_UNKNOWN
/// if a rate is missing.
using StepTimeOn = std::function<Result<TimeRange>(const Device& device, const RunWork& work)>;

/// A machine, or a node of a cluster.
struct Machine {
  Devices devices;
  int64_t cpu_limit_bytes = 0;  // the CPU's memory for jobs; 0: no limit besides its size
  // Returns the memory of running jobs. It is called only if a job does not fit into the free
  // memory. Empty if no job runs.
  std::function<Result<std::vector<JobMemory>>()> job_memory;
  StepTimeOn step_time;  // never empty
};

}  // namespace trainyard
