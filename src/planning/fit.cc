#include "src/planning/fit.h"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <optional>
#include <string_view>
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

/// The optimizers that keep less state than others: one value for each parameter, a row and a
/// column for each matrix, and nothing.
constexpr std::array<std::string_view, 3> kLeanOptimizers = {"lion", "adafactor", "sgd"};

/// The changes with which recipes keep less between steps, from the least change on: the
/// optimizer's state alone; also no sums of gradients; also no gradients that wait for their norm.
std::vector<Recipe> leaner(const Recipe& recipe, std::string_view type, int64_t ranks) {
  std::vector<Recipe> all;
  Recipe r = recipe;
  r.optimizer = default_optimizer(type);
  r.optimizer.learning_rate = recipe.optimizer.learning_rate;
  all.push_back(r);
  if (r.accumulate_steps > 1) {
    r.batch_size = std::max(ranks, r.micro_batch());
    r.accumulate_steps = 1;
    all.push_back(r);
  }
  if (r.clip_norm > 0) {
    r.clip_norm = 0;
    all.push_back(r);
  }
  return all;
}

using Needs = std::function<int64_t(const Recipe&)>;

/// Returns the smallest change to an optimizer of this type with which the job fits.
std::optional<OptimizerAdvice> advise_optimizer(const Recipe& recipe, std::string_view type,
                                                int64_t ranks, int64_t limit_bytes,
                                                const Needs& needs) {
  for (const Recipe& lean : leaner(recipe, type, ranks)) {
    const int64_t unit = std::max<int64_t>(1, lean.accumulate_steps * ranks);
    const auto with_units = [&](int64_t units) {
      Recipe changed = lean;
      changed.batch_size = units * unit;
      return needs(changed);
    };
    int64_t units = lean.batch_size / unit;
    if (const int64_t all_bytes = needs(lean); all_bytes > limit_bytes) {
      const int64_t one_bytes = with_units(1);
      if (one_bytes > limit_bytes) continue;
      units = largest_fitting(units, one_bytes, all_bytes, limit_bytes, with_units);
    }
    OptimizerAdvice advice{std::string(type)};
    advice.without_clip_norm = lean.clip_norm != recipe.clip_norm;
    if (lean.accumulate_steps != recipe.accumulate_steps) advice.accumulate_steps = 1;
    if (units * unit != recipe.batch_size) advice.batch_size = units * unit;
    return advice;
  }
  return std::nullopt;
}

std::vector<OptimizerAdvice> lean_optimizers(const Recipe& recipe, int64_t ranks,
                                             int64_t limit_bytes, const Needs& needs) {
  std::vector<OptimizerAdvice> found;
  for (const std::string_view type : kLeanOptimizers) {
    const bool has_less = type != recipe.optimizer.type || recipe.optimizer.momentum > 0;
    if (!has_less) continue;
    const auto advice = advise_optimizer(recipe, type, ranks, limit_bytes, needs);
    if (advice.has_value()) found.push_back(*advice);
  }
  return found;
}

std::string describe(const OptimizerAdvice& advice) {
  std::string text = "recipe.optimizer.type: " + advice.type;
  const char* before = " with ";
  const auto add = [&](const std::string& change) {
    text += before + change;
    before = " and ";
  };
  if (advice.without_clip_norm) add("no recipe.clip_gradients.norm");
  if (advice.accumulate_steps > 0) {
    add("recipe.accumulate_steps: " + std::to_string(advice.accumulate_steps));
  }
  if (advice.batch_size > 0) add("recipe.batch_size: " + std::to_string(advice.batch_size));
  return text;
}

}  // namespace

FitAdvice advise_fit(const ModelSpec& model, const Recipe& recipe, const DatasetSchema& schema,
                     int64_t limit_bytes, int64_t ranks, DeviceTraits traits,
                     const std::stop_token& stop, bool one_node) {
  const auto needs_of = [&](const Recipe& changed) {
    const Result<RunPlan> plan = plan_run(model, changed, schema, ranks, traits, stop);
    return plan.ok() ? device_bytes(traits, *plan) : std::numeric_limits<int64_t>::max();
  };
  const auto needs = [&](const auto& change) {
    Recipe changed = recipe;
    change(changed);
    return needs_of(changed);
  };
  FitAdvice advice;
  const Result<RunPlan> whole = plan_run(model, recipe, schema, ranks, traits, stop);
  if (!whole.ok()) return advice;
  for (const Shard shard : more_shards(recipe, ranks, one_node)) {
    if (advice.shard != Shard::kNone) break;
    if (needs([&](Recipe& changed) { changed.shard = shard; }) <= limit_bytes) advice.shard = shard;
  }
  if (lasting_bytes(whole->memory) > limit_bytes) {
    if (advice.shard == Shard::kNone) {
      advice.optimizers = lean_optimizers(recipe, ranks, limit_bytes, needs_of);
    }
    return stop.stop_requested() ? FitAdvice() : advice;
  }
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
  const bool is_empty = advice.recompute == Recompute::kNone && advice.shard == Shard::kNone &&
                        advice.accumulate_steps == 0 && advice.batch_size == 0;
  if (is_empty) advice.optimizers = lean_optimizers(recipe, ranks, limit_bytes, needs_of);
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
  for (const OptimizerAdvice& optimizer : advice.optimizers) ways.push_back(describe(optimizer));
  if (ways.empty()) return "no batch_size fits; only a smaller model would";
  return joined(ways) + " would fit";
}

}  // namespace trainyard
