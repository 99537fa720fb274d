#include "src/train/fit.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <vector>

#include "src/base/join.h"
#include "src/graph/op.h"
#include "src/train/programs.h"

namespace trainyard {
namespace {

constexpr int64_t kMicroBatchesMax = 1024;  // more would be tried for nothing

/// What no other batch changes.
int64_t lasting_bytes(const MemoryBreakdown& memory) {
  return memory.parameter_bytes + memory.state_bytes + memory.optimizer_bytes;
}

/// Of the device. The host's memory is the CPU's.
int64_t bytes_on(const DeviceTraits& traits, const RunPlan& plan) {
  return plan.memory.total() + (traits.processor == Processor::kCpu ? plan.host_bytes : 0);
}

/// What may be sharded besides, the least first. Plans of those that a job cannot have are refused.
std::vector<Shard> more_shards(const Recipe& recipe, int64_t ranks, bool head) {
  if (ranks == 1 || recipe.shard != Shard::kNone) return {};
  std::vector<Shard> shards;
  for (const Shard shard : {Shard::kOptimizer, Shard::kHead, Shard::kOptimizer | Shard::kHead,
                            Shard::kParameters, Shard::kHead | Shard::kParameters}) {
    if (splits_head(shard) && !head) continue;
    if (shards_optimizer(shard) && !can_shard(recipe.optimizer)) continue;
    if (shards_parameters(shard) && !updates_elements(recipe.optimizer)) continue;
    shards.push_back(shard);
  }
  return shards;
}

/// The numbers of micro-batches that may replace `recipe`'s, ascending.
std::vector<int64_t> more_micro_batches(const Recipe& recipe, int64_t ranks) {
  std::vector<int64_t> counts;
  for (int64_t k = recipe.accumulate_steps + 1; k <= std::min(recipe.batch_size, kMicroBatchesMax);
       ++k) {
    if (recipe.batch_size % (k * ranks) == 0) counts.push_back(k);
  }
  return counts;
}

/// Whether the mean gradient of micro-batches is that of the whole batch.
bool micro_batches_are_exact(const Graph& graph, const Attributes& loss) {
  const bool weighs_rows =
      loss.find("class_weights") != nullptr || loss.find("ignore_index") != nullptr;
  return !weighs_rows && std::ranges::none_of(graph.nodes(), [](const Node& node) {
    return node.op->type().starts_with("BatchNormalization");
  });
}

/// The most units of a batch, below `all`, that need at most `limit_bytes`; 0: none do. Memory
/// grows nearly by the same amount with each unit, so the straight line between what fits and what
/// does not meets the limit close to the answer; every third step halves, in case it does not.
int64_t largest_fitting(int64_t all, int64_t lasting_bytes, int64_t all_bytes, int64_t limit_bytes,
                        const std::function<int64_t(int64_t)>& needs) {
  int64_t low = 0, high = all;  // low fits (or is 0), high does not
  int64_t low_bytes = lasting_bytes, high_bytes = all_bytes;
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
                     const std::stop_token& stop, bool head) {
  const auto plan_with = [&](const auto& change) {
    Recipe changed = recipe;
    change(changed);
    return plan_run(model, changed, schema, ranks, traits, stop);
  };
  const auto needs = [&](const auto& change) {
    const Result<RunPlan> plan = plan_with(change);
    return plan.ok() ? bytes_on(traits, *plan) : std::numeric_limits<int64_t>::max();
  };
  FitAdvice advice;
  const Result<RunPlan> whole = plan_with([](Recipe&) {});
  if (!whole.ok()) return advice;
  for (const Shard shard : more_shards(recipe, ranks, head)) {
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
  // In units that the micro-batches and the ranks divide.
  const int64_t unit = std::max<int64_t>(1, recipe.accumulate_steps * ranks);
  advice.batch_size =
      unit *
      largest_fitting(recipe.batch_size / unit, lasting_bytes(whole->memory),
                      bytes_on(traits, *whole), limit_bytes, [&](int64_t units) {
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

std::optional<Fit> find_fit(const ModelSpec& model, const Recipe& recipe,
                            const DatasetSchema& schema, int64_t limit_bytes, FitFreedom free,
                            int64_t ranks, DeviceTraits traits, const std::stop_token& stop) {
  const auto plan_with = [&](Shard shard, Recompute recompute, int64_t accumulate_steps) {
    Recipe changed = recipe;
    changed.shard = shard;
    changed.recompute = recompute;
    changed.accumulate_steps = accumulate_steps;
    return plan_run(model, changed, schema, ranks, traits, stop);
  };
  std::vector<Shard> shards = {recipe.shard};
  if (free.shard) {
    for (const Shard shard : more_shards(recipe, ranks, free.head)) shards.push_back(shard);
  }
  if (!free.recompute && !free.accumulate_steps && shards.size() == 1) return std::nullopt;
  const Result<RunPlan> whole = plan_with(recipe.shard, recipe.recompute, recipe.accumulate_steps);
  if (!whole.ok() || bytes_on(traits, *whole) <= limit_bytes) return std::nullopt;
  std::optional<Fit> found;
  const auto try_with = [&](Shard shard, Recompute recompute, int64_t accumulate_steps) {
    Result<RunPlan> plan = plan_with(shard, recompute, accumulate_steps);
    const bool fits = plan.ok() && bytes_on(traits, *plan) <= limit_bytes;
    if (fits) found = Fit{recompute, accumulate_steps, shard, std::move(*plan)};
    return fits;
  };
  std::vector<Recompute> ways = {recipe.recompute};
  for (const Recompute more : {Recompute::kBlocks, Recompute::kFull}) {
    if (free.recompute && more > recipe.recompute) ways.push_back(more);
  }
  std::optional<std::vector<int64_t>> counts;  // of micro-batches that may be chosen
  const auto find_counts = [&]() -> const std::vector<int64_t>& {
    if (counts.has_value()) return *counts;
    counts.emplace();
    if (!free.accumulate_steps) return *counts;
    const Result<RunShape> shape = check_recipe(recipe, model, schema, ranks, traits);
    if (!shape.ok()) return *counts;
    const Result<RunPrograms> programs = compile_run(model, recipe, schema, *shape, 0, stop);
    if (programs.ok() &&
        micro_batches_are_exact(programs->train.program.graph, model.loss.attributes)) {
      counts = more_micro_batches(recipe, ranks);
    }
    return *counts;
  };
  for (const Shard shard : shards) {
    const bool is_written = shard == recipe.shard;
    const Result<RunPlan> plan =
        is_written ? whole : plan_with(shard, recipe.recompute, recipe.accumulate_steps);
    if (!plan.ok() || lasting_bytes(plan->memory) > limit_bytes) continue;
    for (const Recompute way : ways) {
      if (is_written && way == recipe.recompute) continue;
      if (try_with(shard, way, recipe.accumulate_steps)) break;
    }
    for (const Recompute way : ways) {
      if (found) break;
      // Of those tried that fit, the fewest is tried last.
      (void)std::ranges::partition_point(find_counts(),
                                         [&](int64_t k) { return !try_with(shard, way, k); });
    }
    if (found) break;
  }
  if (stop.stop_requested()) return std::nullopt;
  return found;
}

}  // namespace trainyard
