// src/planning/sharding_plans.h: compares the sharding plans of a job. A sharding plan is a choice
// of what is sharded, what is recomputed, and the number of micro-batches. Each is planned exactly
// to the byte and, if rates are known, with the step's time. One is chosen; each of the others has
// a message that explains why it was not. Pure functions, like those of job_plan.h.
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

/// Returns the bytes of a device's memory that the plan's programs take. On the CPU these include
/// RunPlan::host_bytes.
int64_t device_bytes(const DeviceTraits& traits, const RunPlan& plan);
/// Returns the part of the memory that lasts between steps, which does not depend on the batch
/// size.
int64_t lasting_bytes(const MemoryBreakdown& memory);
/// Returns the larger numbers of micro-batches that `recipe` may have instead of its own,
/// ascending.
std::vector<int64_t> more_micro_batches(const Recipe& recipe, int64_t ranks);

/// The fields of a recipe that change where the job's tensors are stored, but not what it computes.
struct ShardingPlan {
  Shard shard = Shard::kNone;
  Recompute recompute = Recompute::kNone;
  int64_t accumulate_steps = 1;

  bool operator==(const ShardingPlan&) const = default;
};
ShardingPlan sharding_of(const Recipe& recipe);
void set_sharding(const ShardingPlan& sharding, Recipe& recipe);

/// The fields of a sharding plan that a recipe leaves open.
struct FitFreedom {
  bool recompute = false;
  bool accumulate_steps = false;  // changed only if the result then differs by rounding at most
  bool shard = false;             // only for several devices
};

enum class ShardingVerdict : uint8_t {
  kChosen,
  kFits,
  kChangesResult,  // fits, but trains differently: used only if the spec requests it
  kDoesNotFit,
  kRefused,  // a spec that requests it would be refused
};
/// Returns one of "chosen", "fits", "changes the result", "does not fit", "refused".
std::string_view name_of(ShardingVerdict verdict);

struct ShardingRow {
  ShardingPlan sharding;
  bool as_written = false;
  ShardingVerdict verdict = ShardingVerdict::kDoesNotFit;
  int64_t bytes = 0;              // memory on each device; 0 if refused
  int64_t sent_bytes = 0;         // lower bound for the bytes that each device sends in a step
  std::optional<TimeRange> step;  // if the plan fits and rates are known
  std::string message;            // why the plan was chosen, or why not
};

/// The time of a step of a recipe with this plan; nullopt if it is unknown.
using StepTimes = std::function<std::optional<TimeRange>(const Recipe& recipe, const RunPlan&)>;

inline constexpr int64_t kProgramsLeast = 16;
struct ShardingQuery {
  // The device's memory for a plan, as for advise_fit(); the maximum if it is unknown.
  int64_t limit_bytes = std::numeric_limits<int64_t>::max();
  // The fields that the recipe leaves open; the others are as written in every sharding plan.
  FitFreedom free;
  int64_t ranks = 1;
  DeviceTraits traits;
  StepTimes step_times;  // empty: no rates are known
  // Refuses values of `shard` that other fields of the spec, which the engine does not know,
  // forbid. The error is that of a spec with this value. Empty: refuses nothing.
  std::function<Status(Shard)> check_shard;
  // If only the choice is needed: ends the search as soon as the choice is certain, that is at the
  // first sharding plan that fits and whose time is unknown.
  bool until_chosen = false;
  // The most programs that are compiled, which takes milliseconds each. Fewer for very large
  // networks, but at least kProgramsLeast, so that all programs together have at most `nodes_max`
  // nodes, which takes a few seconds.
  int64_t programs_max = 96, nodes_max = 200'000;
};

struct ShardingPlans {
  // Sorted: the chosen plan; other plans that fit, by their time (unknown times last); plans that
  // change the result; plans that do not fit, by their bytes; refused plans.
  std::vector<ShardingRow> rows;
  std::optional<ShardingPlan> chosen;  // nullopt if nothing fits
  bool by_forecast = false;  // predicted times led to another plan than the first that fits
  int64_t programs = 0;      // the number of compiled programs
  int64_t left_out = 0;  // combinations of shard and recompute not tried because of programs_max
};

/// Plans are made in the order of how much they change. The values of `shard` come first: none,
/// then those with few parts before those with many. For each of them, each way to recompute is
/// planned with the recipe's number of micro-batches, and then, for those that do not fit, with the
/// fewest micro-batches that do. If the memory that lasts between steps is already too large for a
/// value of `shard`, only one plan is made for it.
///
/// The recipe as written is chosen if it fits. Else the choice is the first plan that fits and
/// whose range of predicted times begins no later than the likely time of the fastest plan. So
/// without rates the first plan that fits is chosen, and a plan with identical bits is preferred to
/// one that differs by rounding unless the latter is clearly faster. Micro-batches are never chosen
/// if the mean of their gradients is not that of the whole batch (batch normalization, class
/// weights, an ignored label).
///
/// The error is that of plan_run() for the recipe as written, or CANCELLED/STOPPED soon after
/// `stop` is requested.
Result<ShardingPlans> enumerate_sharding_plans(const ModelSpec& model, const Recipe& recipe,
                                               const DatasetSchema& schema,
                                               const ShardingQuery& query,
                                               const std::stop_token& stop = {});

}  // namespace trainyard
