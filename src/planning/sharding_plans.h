// src/planning/sharding_plans.h: the ways to lay a job out in its devices' memory, side by side:
// what is sharded, what is computed again, in how many micro-batches. Each is planned to the byte
// and, where rates are known, to the step's time; one is chosen, and each of the others says why it
// was not. Pure, as job_plan.h.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.h"
#include "src/data/schema.h"
#include "src/forecast/forecast.h"
#include "src/job/recipe.h"
#include "src/job/run_plan.h"
#include "src/plan/device_traits.h"

namespace trainyard {

/// Of the device, as a plan's programs take it. The host's memory is the CPU's.
int64_t device_bytes(const DeviceTraits& traits, const RunPlan& plan);
/// What no other batch changes.
int64_t lasting_bytes(const MemoryBreakdown& memory);
/// The numbers of micro-batches that may replace `recipe`'s, ascending.
std::vector<int64_t> more_micro_batches(const Recipe& recipe, int64_t ranks);

/// What of a recipe changes where the job's tensors lie, and not what it computes.
struct ShardingPlan {
  Shard shard = Shard::kNone;
  Recompute recompute = Recompute::kNone;
  int64_t accumulate_steps = 1;

  bool operator==(const ShardingPlan&) const = default;
};
ShardingPlan sharding_of(const Recipe& recipe);
void set_sharding(const ShardingPlan& sharding, Recipe& recipe);

/// What a recipe leaves open.
struct FitFreedom {
  bool recompute = false;
  bool accumulate_steps = false;  // chosen only where roundings alone change
  bool shard = false;             // of several devices, where there is something to shard
};

enum class ShardingVerdict : uint8_t {
  kChosen,
  kFits,
  kChangesResult,  // fits, and trains otherwise: only who names it gets it
  kDoesNotFit,
  kRefused,  // as a spec that names it is
};
/// "chosen", "fits", "changes the result", "does not fit", "refused".
std::string_view name_of(ShardingVerdict verdict);

struct ShardingRow {
  ShardingPlan sharding;
  bool as_written = false;
  ShardingVerdict verdict = ShardingVerdict::kDoesNotFit;
  int64_t bytes = 0;              // in each device; 0 of a refused one
  int64_t sent_bytes = 0;         // by each device in a step, at least
  std::optional<TimeRange> step;  // of what fits, where rates are known
  std::string message;            // why it was chosen, or not
};

/// How long a step of a recipe with this plan takes; nothing where that is unknown.
using StepTimes = std::function<std::optional<TimeRange>(const Recipe& recipe, const RunPlan&)>;

inline constexpr int64_t kProgramsLeast = 16;
struct ShardingQuery {
  // What the device has for a plan, as for advise_fit; without a bound where that is unknown.
  int64_t limit_bytes = std::numeric_limits<int64_t>::max();
  FitFreedom
      free;  // what the recipe leaves open; the rest is as it is written in every sharding plan
  int64_t ranks = 1;
  DeviceTraits traits;
  StepTimes step_times;  // none: no rates are known
  // What the engine does not know of and the spec's other fields forbid; the error is that of such
  // a spec. None: nothing.
  std::function<Status(Shard)> check_shard;
  // For a choice alone: ends at the first sharding plan that fits if its time is unknown, since
  // that is chosen then.
  bool until_chosen = false;
  // That are compiled, milliseconds each; of very large networks fewer, at least kProgramsLeast, so
  // that all of them together have so many nodes: a few seconds.
  int64_t programs_max = 96, nodes_max = 200'000;
};

struct ShardingPlans {
  // The chosen one, then what fits by its time (unknown ones by what they change), what would
  // change the result, what does not fit by its bytes, what is refused.
  std::vector<ShardingRow> rows;
  std::optional<ShardingPlan> chosen;  // none: nothing fits
  bool by_forecast = false;            // the chosen one is not the first that fits
  int64_t programs = 0;                // that were compiled
  int64_t left_out = 0;  // pairs of shard and recompute, for which no program was left
};

/// They are planned in the order of what they change: what can be sharded, nothing first and few
/// parts before many; for each set, the recipe's micro-batches with each way to recompute, and
/// then, for those that do not fit, the fewest micro-batches with which they do. What is not enough
/// without any activations is planned once.
///
/// Chosen is the recipe as it is if it fits. Else the first that the forecast cannot tell from the
/// fastest of those that fit: in the range of its time is the fastest one's. So rates that are
/// unknown change nothing, and to the same bits is preferred to roundings where the difference may
/// be none. Micro-batches of a mean that is not the whole batch's (batch normalization, class
/// weights, an ignored label) are never chosen.
///
/// The error is that of plan_run() for the recipe as it is; CANCELLED/STOPPED soon after `stop` is
/// requested.
Result<ShardingPlans> enumerate_sharding_plans(const ModelSpec& model, const Recipe& recipe,
                                               const DatasetSchema& schema,
                                               const ShardingQuery& query,
                                               const std::stop_token& stop = {});

}  // namespace trainyard
