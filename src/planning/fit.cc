#include "src/planning/fit.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <vector>

#include "src/base/join.h"
#include "src/planning/job_plan.h"
#include "src/planning/sharding_plans.h"

namespace trainyard {
namespace {

/// Returns the values that may replace Shard::kNone, in order from the smallest change on. The
/// planner refuses those that the model does not allow.
std::vector<Shard> more_shards(const Recipe& recipe, int64_t ranks, bool one_node) {
  if (ranks == 1 || recipe.shard != Shard::kNone) return {};
  std::vector<Shard> shards;
  for (const Shard shard : shard_sets()) {
    if (splits_layers(shard) && !one_node) continue;
    if (shards_optimizer(shard) && !can_shard(recipe.optimizer)) continue;
    if (shards_parameters(shard) && !updates_elements(recipe.optimizer)) continue;
    shards.push_back(shard);
  }
  return shards;
}

/// Returns the largest number of batch units below `all` that needs at most `limit_bytes`; 0 if
/// none does. Memory grows nearly linearly with the units, so linear interpolation between a size
/// that fits and one that does not finds the answer in few steps. Every third step bisects instead,
/// in case memory does not grow linearly.
int64_t largest_fitting(int64_t all, int64_t kept_bytes, int64_t all_bytes, int64_t limit_bytes,
                        const std::function<int64_t(int64_t)>& needs) {
  int64_t low = 0, high = all;  // invariant: `low` fits or is 0, `high` does not fit
  int64_t low_bytes = kept_bytes, high_bytes = all_bytes;
  for (int step = 1; low + 1 < high; ++step) {
    int64_t units = low + (high - low) / 2;
    if (step % 3 != 0 && high_bytes > low_bytes) {
      const double share = static_cast<double>(limit_bytes - low_bytes) /
                           static_cast<double>(high_bytes - low_bytes);
      units = low + static_cast<int64_t>(share * static_cast<double>(high - low));
      units = std::clamp(units, low + 1, high - 1);
    }
    const int64_t bytes = needs(units);
    (bytes <= limit_bytes ? low : high) = units;
    (bytes <= limit_bytes ? low_bytes : high_bytes) = bytes;
  }
  return low;
}

}  // namespace

FitAdvice advise_fit(const ModelSpec& model, const Recipe& recipe, const DatasetSchema& schema,
                     int64_t limit_bytes, int64_t ranks, DeviceTraits traits,
                     const std::stop_token& stop, bool one_node) {
  const auto plan_with = [&](const auto& change) {
    Recipe changed = recipe;
    change(changed);
    return plan_run(model, changed, schema, ranks, traits, stop);
  };
  const auto needs = [&](const auto& change) {
    const Result<RunPlan> plan = plan_with(change);
    return plan.ok() ? device_bytes(traits, *plan) : std::numeric_limits<int64_t>::max();
  };
  FitAdvice advice;
  const Result<RunPlan> whole = plan_with([](Recipe&) {});
  if (!whole.ok()) return advice;
  for (const Shard shard : more_shards(recipe, ranks, one_node)) {
    if (advice.shard != Shard::kNone) break;
    if (needs([&](Recipe& changed) { changed.shard = shard; }) <= limit_bytes) advice.shard = shard;
  }
  if (lasting_bytes(whole->memory) > limit_bytes) return advice;
  for (const Recompute r : {Recompute::kBlocks, Recompute::kFull}) {
    if (r <= recipe.recompute || advice.recompute != Recompute::kNone) continue;
    if (needs([&](Recipe& changed) { changed.recompute = r; }) <= limit_bytes) advice.recompute = r;
  }
  const std::vector<int64_t> counts = more_micro_batches(recipe, ranks);
  const auto fewest = std::ranges::partition_point(counts, [&](int64_t k) {
    return needs([&](Recipe& changed) { changed.accumulate_steps = k; }) > limit_bytes;
  });
  if (fewest != counts.end()) advice.accumulate_steps = *fewest;
  // The batch size must be a multiple of micro-batches times ranks.
  const int64_t unit = std::max<int64_t>(1, recipe.accumulate_steps * ranks);
  advice.batch_size =
      unit *
      largest_fitting(recipe.batch_size / unit, lasting_bytes(whole->memory),
                      device_bytes(traits, *whole), limit_bytes, [&](int64_t units) {
                        return needs([&](Recipe& changed) { changed.batch_size = units * unit; });
                      });
  if (stop.stop_requested()) return {};
  return advice;
}

std::string describe(const FitAdvice& advice) {
  std::vector<std::string> ways;
  if (advice.recompute != Recompute::kNone) {
    ways.push_back("recipe.recompute: " + std::string(name_of(advice.recompute)));
  }
  if (advice.shard != Shard::kNone) {
    ways.push_back("resources.shard: " + name_of(advice.shard));
  }
  if (advice.accumulate_steps > 0) {
    ways.push_back("recipe.accumulate_steps: " + std::to_string(advice.accumulate_steps));
  }
  if (advice.batch_size > 0) {
    ways.push_back("recipe.batch_size: " + std::to_string(advice.batch_size));
  }
  if (ways.empty()) return "no batch_size fits; only a smaller model would";
  return joined(ways) + " would fit";
}

}  // namespace trainyard
