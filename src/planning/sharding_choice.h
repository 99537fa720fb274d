// src/planning/sharding_choice.h: finds the sharding plans of a job for a machine's devices, with
// predicted step times if rates are known, and chooses one with which the job fits. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>

#include "src/base/result.h"
#include "src/data/schema.h"
#include "src/job/recipe.h"
#include "src/job/run_plan.h"
#include "src/plan/device_traits.h"
#include "src/planning/memory_room.h"
#include "src/planning/planner_input.h"
#include "src/planning/sharding_plans.h"

namespace trainyard {

/// A job, and the machine and memory into which it must fit.
struct ShardingQuestion {
  const JobToPlan& job;
  const Recipe& recipe;  // with its batch size chosen
  const DatasetSchema& schema;
  const Machine& machine;
  const MemoryRoom& room;
  DeviceTraits traits;  // of the devices that the plans are for
  bool all = false;     // if false, only the plans that a choice needs are made
};
struct FoundShardings {
  ShardingPlans plans;
  MemoryRoom room;    // the memory that the plans were compared with
  std::string basis;  // sentences: the source of times and bytes, and how many plans were left out
};
/// Returns CANCELLED/STOPPED soon after `stop` is requested.
Result<FoundShardings> find_sharding_plans(const ShardingQuestion& question,
                                           const std::stop_token& stop);

/// The values that the planner chose for fields which the spec leaves open.
struct FitChoice {
  int64_t batch_size = 0;  // chosen for `batch_size: auto`; 0 if the spec has a number
  // The fields that were changed from the spec as written to make the job fit.
  std::optional<Recompute> recompute;
  std::optional<int64_t> accumulate_steps;
  std::optional<Shard> shard;
  int64_t bytes_as_written = 0;                          // memory that the job as written needs
  int64_t flops_as_written = 0;                          // of a step of the job as written
  double step_seconds = 0, step_seconds_as_written = 0;  // predicted; 0: unknown
  std::string message;                                   // the choice and its cost in words
};

/// Writes the chosen sharding plan into the recipe of a job that does not fit as written.
/// `as_written` is the plan of the job as written. Returns nullopt if no sharding plan fits. The
/// caller adds the cost to the message.
std::optional<FitChoice> choose_fit(Recipe& recipe, const ShardingPlans& plans,
                                    const RunPlan& as_written, const MemoryRoom& room,
                                    DeviceTraits traits);

/// Returns text such as "; a step takes about 27% longer by forecast". Without step times, compares
/// the FLOPs of a step: "; a step computes 33% more", or empty if the FLOPs are the same.
std::string cost_text(const FitChoice& choice, int64_t flops_per_step);

}  // namespace trainyard
