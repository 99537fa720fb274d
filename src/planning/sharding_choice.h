// src/planning/sharding_choice.h: the sharding plans of a job in the memory of a machine's devices,
// with the times of its steps where these are known, and the choice that lets the job fit. Pure.
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

/// A job, and where it is to fit.
struct ShardingQuestion {
  const JobToPlan& job;
  const Recipe& recipe;  // with the size of its batches
  const DatasetSchema& schema;
  const Machine& machine;
  const MemoryRoom& room;
  DeviceTraits traits;  // that it is planned with
  bool all = false;     // else no more than a choice takes
};
struct FoundShardings {
  ShardingPlans plans;
  MemoryRoom room;    // that they were compared with
  std::string basis;  // sentences: what times and bytes are of, and what was left out
};
/// CANCELLED/STOPPED soon after `stop` is requested.
Result<FoundShardings> find_sharding_plans(const ShardingQuestion& question,
                                           const std::stop_token& stop);

/// The values that the planner chose for fields which the spec leaves open.
struct FitChoice {
  int64_t batch_size = 0;  // that `batch_size: auto` stands for; 0: the spec has a number
  // The fields that differ from the spec as it is written, so that the job fits.
  std::optional<Recompute> recompute;
  std::optional<int64_t> accumulate_steps;
  std::optional<Shard> shard;
  int64_t bytes_as_written = 0;                          // that the job would need
  int64_t flops_as_written = 0;                          // of a step
  double step_seconds = 0, step_seconds_as_written = 0;  // by forecast; 0: unknown
  std::string message;                                   // what was chosen and what it costs
};

/// Writes the chosen sharding plan into the recipe of a job that does not fit as it is written.
/// `as_written` is its plan. Returns nothing if no sharding plan fits. The caller adds the cost.
std::optional<FitChoice> choose_fit(Recipe& recipe, const ShardingPlans& plans,
                                    const RunPlan& as_written, const MemoryRoom& room,
                                    DeviceTraits traits);

/// "; a step takes about 27% longer by forecast"; of a choice without forecasts, by what a step
/// computes: "; a step computes 33% more", or nothing if that is the same.
std::string cost_text(const FitChoice& choice, int64_t flops_per_step);

}  // namespace trainyard
