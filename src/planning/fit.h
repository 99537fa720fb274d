// src/planning/fit.h: a job that needs more memory than a device has, whatever of its sharding plan
// may be chosen (sharding_plans.h): what would make it fit. Pure, as job_plan.h.
#pragma once

#include <cstdint>
#include <stop_token>
#include <string>

#include "src/data/schema.h"
#include "src/job/recipe.h"
#include "src/plan/device_traits.h"
#include "src/plan/program.h"

namespace trainyard {

/// Changes that would make a job fit that needs more than a device has; each by itself, the rest
/// unchanged.
struct FitAdvice {
  // The least that fits of what gives the same result; kNone and 0 where nothing does.
  Recompute recompute = Recompute::kNone;
  Shard shard = Shard::kNone;
  int64_t accumulate_steps = 0;
  int64_t batch_size = 0;  // the largest that fits; 0: none does
};
/// `limit_bytes` is what the device has for the plan: without the kernels' workspace, if it is
/// known, and the dataset on a GPU that holds it. `one_node`: layers may be split, since the
/// devices are of one node. Plans some ten times, and none of them where what lasts between steps
/// is too large already. Nothing once `stop` is requested.
FitAdvice advise_fit(const ModelSpec& model, const Recipe& recipe, const DatasetSchema& schema,
                     int64_t limit_bytes, int64_t ranks = 1, DeviceTraits traits = {},
                     const std::stop_token& stop = {}, bool one_node = true);
/// "recipe.recompute: blocks, recipe.accumulate_steps: 4 or recipe.batch_size: 48 would fit": the
/// advice in words; never empty.
std::string describe(const FitAdvice& advice);

}  // namespace trainyard
