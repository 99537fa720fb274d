#include "src/planning/sharding_plans.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "src/base/stop.h"
#include "src/base/text.h"
#include "src/graph/op.h"
#include "src/planning/programs.h"
#include "src/planning/run_work.h"

namespace trainyard {
namespace {

constexpr int64_t kMicroBatchesMax = 1024;  // more micro-batches hardly save any more memory

/// Returns why the mean gradient of micro-batches differs from that of the whole batch; empty if it
/// does not.
std::string micro_batch_effect(const Graph& graph, const Attributes& loss) {
  if (loss.find("class_weights") != nullptr) return "each micro-batch has its own sum of weights";
  if (loss.find("ignore_index") != nullptr) return "each micro-batch ignores other labels";
  const auto normalizes = [](const Node& node) {
    return node.op->type().starts_with("BatchNormalization");
  };
  return std::ranges::any_of(graph.nodes(), normalizes)
             ? "batch normalization computes its statistics over each micro-batch"
             : "";
}

int64_t sent_bytes(const RunPlan& plan) {
  int64_t bytes = 0;
  for (const PlannedExchange& exchange : plan.exchanges) bytes += exchange.sent_bytes;
  return bytes;
}

/// Returns text such as "12% slower": a step time compared with that of the chosen plan.
std::string compared(const TimeRange& step, const TimeRange& chosen) {
  const long percent = std::lround(100 * (step.seconds / chosen.seconds - 1));
  if (percent == 0) return "as fast";
  const std::string text =
      std::to_string(std::abs(percent)) + (percent > 0 ? "% slower" : "% faster");
  if (percent > 0) return text;
  return text + (step.seconds < chosen.low ? ": set it in the spec to use it"
                                           : ", within the forecast's error");
}

/// Returns the sort key of a row.
std::pair<ShardingVerdict, double> place_of(const ShardingRow& row) {
  const bool fits = row.verdict <= ShardingVerdict::kChangesResult;
  const double unknown = std::numeric_limits<double>::max();
  return {row.verdict, !fits      ? static_cast<double>(row.bytes)
                       : row.step ? row.step->seconds
                                  : unknown};
}

class ShardingSearch {
 public:
  ShardingSearch(const ModelSpec& model, const Recipe& recipe, const DatasetSchema& schema,
                 const ShardingQuery& query, const std::stop_token& stop)
      : model_(model), recipe_(recipe), schema_(schema), query_(query), stop_(stop) {}

  Result<ShardingPlans> run() {
    const Result<RunPlan> written = plan(sharding_of(recipe_));
    if (!written.ok()) return written.error();
    const int64_t nodes = std::max<int64_t>(1, written->work.nodes);
    programs_max_ =
        std::min(query_.programs_max, std::max(kProgramsLeast, query_.nodes_max / nodes));
    if (query_.until_chosen && fits(written)) {
      add(sharding_of(recipe_), written);
    } else {
      std::vector<Shard> sets = {recipe_.shard};
      if (query_.free.shard && query_.ranks > 1 && recipe_.shard == Shard::kNone) {
        for (const Shard set : shard_sets()) sets.push_back(set);
      }
      for (const Shard set : sets) {
        if (is_decided_) break;
        add_set(set, set == recipe_.shard ? &*written : nullptr);
      }
    }
    if (Status s = check_stop(stop_); !s.ok()) return s.error();
    choose();
    for (ShardingRow& row : found_.rows) row.as_written = row.sharding == sharding_of(recipe_);
    std::ranges::stable_sort(found_.rows, {}, place_of);
    return std::move(found_);
  }

 private:
  using Plans = std::map<int64_t, Result<RunPlan>>;  // keyed by the number of micro-batches

  bool fits(const Result<RunPlan>& plan) const {
    return plan.ok() && device_bytes(query_.traits, *plan) <= query_.limit_bytes;
  }
  bool has_programs_left() const { return found_.programs < programs_max_; }
  Recipe recipe_with(const ShardingPlan& sharding) const {
    Recipe changed = recipe_;
    set_sharding(sharding, changed);
    return changed;
  }

  Result<RunPlan> plan(const ShardingPlan& sharding) {
    const Recipe changed = recipe_with(sharding);
    ASSIGN_OR_RETURN(const RunShape shape,
                     check_recipe(changed, model_, schema_, query_.ranks, query_.traits));
    ++found_.programs;
    ASSIGN_OR_RETURN(const RunPrograms programs,
                     compile_run(model_, changed, schema_, shape, 0, stop_));
    if (!effect_) {  // it is the same in all sharding plans
      effect_ = micro_batch_effect(programs.train.program.graph, model_.loss.attributes);
    }
    RunPlan plan = describe_run(programs, shape, changed);
    plan.work = run_work(programs, shape, changed, schema_, plan);
    return plan;
  }

  /// Adds the row of a sharding plan. Returns whether it fits without changing the result.
  bool add(const ShardingPlan& sharding, const Result<RunPlan>& plan) {
    ShardingRow& row = found_.rows.emplace_back();
    row.sharding = sharding;
    if (!plan.ok()) {
      row.verdict = ShardingVerdict::kRefused;
      row.message = plan.error().message;
      return false;
    }
    row.bytes = device_bytes(query_.traits, *plan);
    row.sent_bytes = sent_bytes(*plan);
    const int64_t lasting = lasting_bytes(plan->memory);
    if (lasting > query_.limit_bytes) {
      row.message = human_bytes(row.bytes - query_.limit_bytes) + " too large, " +
                    human_bytes(lasting - query_.limit_bytes) + " of them at any batch size";
    } else if (row.bytes > query_.limit_bytes) {
      row.message = human_bytes(row.bytes - query_.limit_bytes) + " too large";
    } else {
      row.verdict = ShardingVerdict::kFits;
      if (query_.step_times) row.step = query_.step_times(recipe_with(sharding), *plan);
      if (sharding.accumulate_steps != recipe_.accumulate_steps && !effect_->empty()) {
        row.verdict = ShardingVerdict::kChangesResult;
        row.message = *effect_;
      }
    }
    // The first plan that fits and has no time is the choice.
    is_decided_ |=
        query_.until_chosen && row.verdict == ShardingVerdict::kFits && !row.step.has_value();
    return row.verdict == ShardingVerdict::kFits;
  }

  /// Adds the rows for one value of `shard`. `written` is its plan with the recipe's own recompute
  /// and micro-batches, or null if that has not been planned yet.
  void add_set(Shard set, const RunPlan* written) {
    const ShardingPlan first{set, recipe_.recompute, recipe_.accumulate_steps};
    Result<RunPlan> plan_of_first = Error{};
    if (written != nullptr) {
      plan_of_first = *written;
    } else if (Status s = query_.check_shard ? query_.check_shard(set) : Status{}; !s.ok()) {
      plan_of_first = s.error();
    } else if (has_programs_left()) {
      plan_of_first = plan(first);
    } else {
      found_.left_out += std::ssize(ways());
      return;
    }
    if (stop_.stop_requested()) return;
    if (!plan_of_first.ok()) return add_refused(first, plan_of_first);
    const bool first_fits = add(first, plan_of_first);
    if (is_decided_ || lasting_bytes(plan_of_first->memory) > query_.limit_bytes) return;

    std::vector<Recompute> too_large;
    if (!first_fits) too_large.push_back(first.recompute);
    for (const Recompute way : ways()) {
      if (way == recipe_.recompute) continue;
      if (!has_programs_left()) {
        ++found_.left_out;
        continue;
      }
      const ShardingPlan sharding{set, way, recipe_.accumulate_steps};
      if (!add(sharding, plan(sharding))) too_large.push_back(way);
      if (is_decided_ || stop_.stop_requested()) return;
    }
    for (const Recompute way : too_large) add_fewest(set, way);
  }

  /// Adds the row of a refused plan, unless a value that shards a part of the same was refused.
  void add_refused(const ShardingPlan& sharding, const Result<RunPlan>& refusal) {
    const bool part_is_refused = std::ranges::any_of(
        refused_, [&](Shard part) { return (sharding.shard | part) == sharding.shard; });
    refused_.push_back(sharding.shard);
    if (!part_is_refused) add(sharding, refusal);
  }

  /// Adds the row with the fewest micro-batches that fit, or with the most if none fit.
  void add_fewest(Shard set, Recompute way) {
    if (is_decided_ || !query_.free.accumulate_steps || stop_.stop_requested()) return;
    if (query_.until_chosen && !effect_->empty()) return;
    const std::vector<int64_t> counts = more_micro_batches(recipe_, query_.ranks);
    if (counts.empty()) return;
    Plans plans;
    const auto fewest = std::ranges::partition_point(counts, [&](int64_t k) {
      if (!has_programs_left()) return true;
      const auto tried = plans.emplace(k, plan({set, way, k})).first;
      return !fits(tried->second);
    });
    const int64_t shown = fewest == counts.end() ? counts.back() : *fewest;
    if (stop_.stop_requested()) return;
    if (const auto tried = plans.find(shown); tried != plans.end()) {
      add({set, way, shown}, tried->second);
    } else {
      ++found_.left_out;
    }
  }

  /// Returns the ways to recompute: the recipe's, and if it leaves them open those that recompute
  /// more.
  std::vector<Recompute> ways() const {
    std::vector<Recompute> all = {recipe_.recompute};
    for (const Recompute more : {Recompute::kBlocks, Recompute::kFull}) {
      if (query_.free.recompute && more > recipe_.recompute) all.push_back(more);
    }
    return all;
  }

  void choose() {
    std::vector<ShardingRow>& rows = found_.rows;
    const ShardingRow* first = nullptr;
    const ShardingRow* fastest = nullptr;
    for (const ShardingRow& row : rows) {
      if (row.verdict != ShardingVerdict::kFits) continue;
      if (first == nullptr) first = &row;
      if (row.step && (fastest == nullptr || row.step->seconds < fastest->step->seconds)) {
        fastest = &row;
      }
    }
    if (first == nullptr) return;
    const ShardingRow* chosen = first;
    if (first != &rows.front() && first->step) {
      while (chosen->verdict != ShardingVerdict::kFits || !chosen->step ||
             chosen->step->low > fastest->step->seconds) {
        ++chosen;
      }
    }
    found_.chosen = chosen->sharding;
    found_.by_forecast = chosen != first;
    const TimeRange* const chosen_step = chosen->step ? &*chosen->step : nullptr;
    for (ShardingRow& row : rows) {
      if (row.verdict != ShardingVerdict::kFits) continue;
      if (&row == chosen) {
        row.message = why_chosen(row, fastest);
      } else if (row.step && chosen_step != nullptr) {
        row.message = compared(*row.step, *chosen_step);
      } else {
        row.message = "changes more";
      }
    }
    rows[static_cast<size_t>(chosen - rows.data())].verdict = ShardingVerdict::kChosen;
  }

  std::string why_chosen(const ShardingRow& row, const ShardingRow* fastest) const {
    if (&row == &found_.rows.front()) return "";
    const auto others =
        std::ranges::count(found_.rows, ShardingVerdict::kFits, &ShardingRow::verdict);
    if (others == 1) return "the only one that fits";
    if (!row.step) return "changes least";
    return fastest == &row ? "the fastest" : "changes least of those about as fast as the fastest";
  }

  const ModelSpec& model_;
  const Recipe& recipe_;
  const DatasetSchema& schema_;
  const ShardingQuery& query_;
  const std::stop_token& stop_;
  ShardingPlans found_;
  int64_t programs_max_ = 1;
  std::optional<std::string> effect_;  // micro_batch_effect(), once a plan was made
  std::vector<Shard> refused_;
  bool is_decided_ = false;
};

}  // namespace

int64_t device_bytes(const DeviceTraits& traits, const RunPlan& plan) {
  return plan.memory.total() + plan.memory.mapped_bytes +
         (traits.processor == Processor::kCpu ? plan.host_bytes : 0);
}

int64_t lasting_bytes(const MemoryBreakdown& memory) {
  return memory.parameter_bytes + memory.state_bytes + memory.optimizer_bytes;
}

std::vector<int64_t> more_micro_batches(const Recipe& recipe, int64_t ranks) {
  std::vector<int64_t> counts;
  for (int64_t k = recipe.accumulate_steps + 1; k <= std::min(recipe.batch_size, kMicroBatchesMax);
       ++k) {
    if (recipe.batch_size % (k * ranks) == 0) counts.push_back(k);
  }
  return counts;
}

ShardingPlan sharding_of(const Recipe& recipe) {
  return {recipe.shard, recipe.recompute, recipe.accumulate_steps};
}

void set_sharding(const ShardingPlan& sharding, Recipe& recipe) {
  recipe.shard = sharding.shard;
  recipe.recompute = sharding.recompute;
  recipe.accumulate_steps = sharding.accumulate_steps;
}

std::string_view name_of(ShardingVerdict verdict) {
  switch (verdict) {
    case ShardingVerdict::kChosen:
      return "chosen";
    case ShardingVerdict::kFits:
      return "fits";
    case ShardingVerdict::kChangesResult:
      return "changes the result";
    case ShardingVerdict::kDoesNotFit:
      return "does not fit";
    case ShardingVerdict::kRefused:
      return "refused";
  }
  return "";
}

Result<ShardingPlans> enumerate_sharding_plans(const ModelSpec& model, const Recipe& recipe,
                                               const DatasetSchema& schema,
                                               const ShardingQuery& query,
                                               const std::stop_token& stop) {
  return ShardingSearch(model, recipe, schema, query, stop).run();
}

}  // namespace trainyard
