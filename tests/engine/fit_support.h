// tests/engine/fit_support.h: the sharding plan chosen for a job that does not fit into memory.
#pragma once

#include <optional>

#include "src/job/recipe.h"
#include "src/job/run_plan.h"
#include "src/planning/job_plan.h"
#include "src/planning/sharding_plans.h"

namespace trainyard {

/// The changes to a recipe that make it fit; all else is unchanged.
struct Fit {
  Recompute recompute = Recompute::kNone;
  int64_t accumulate_steps = 1;
  Shard shard = Shard::kNone;
  RunPlan plan;
};

/// Chooses as the daemon does while no rates are known. Returns nothing if the unchanged recipe
/// fits, or if no change makes it fit.
inline std::optional<Fit> find_fit(const ModelSpec& model, const Recipe& recipe,
                                   const DatasetSchema& schema, int64_t limit_bytes,
                                   FitFreedom free, int64_t ranks = 1) {
  ShardingQuery query;
  query.limit_bytes = limit_bytes;
  query.free = free;
  query.ranks = ranks;
  query.until_chosen = true;
  const ShardingPlans found = enumerate_sharding_plans(model, recipe, schema, query).value();
  if (!found.chosen || *found.chosen == sharding_of(recipe)) return std::nullopt;
  const ShardingPlan& sharding = *found.chosen;
  Recipe changed = recipe;
  set_sharding(sharding, changed);
  return Fit{sharding.recompute, sharding.accumulate_steps, sharding.shard,
             plan_run(model, changed, schema, ranks).value()};
}

}  // namespace trainyard
