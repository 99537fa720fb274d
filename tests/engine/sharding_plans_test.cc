// The tests catch a sharding plan that is missing, has other bytes than the job would need, is
// rejected for a false reason, or is chosen against the forecast or by rates that are unknown.
#include "src/planning/sharding_plans.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "src/base/text.h"
#include "src/job/recipe.h"
#include "src/job/run_plan.h"
#include "src/planning/job_plan.h"

namespace trainyard {
namespace {

constexpr Shard kBoth = Shard::kOptimizer | Shard::kHead;

LayerSpec layer_of(const char* op, int64_t units = 0) {
  LayerSpec spec;
  spec.op = op;
  if (units > 0) spec.attributes.set("units", units);
  return spec;
}

/// Returns a model whose activations outweigh its parameters.
ModelSpec deep(bool normalized = false) {
  ModelSpec model;
  for (int i = 0; i < 12; ++i) {
    model.layers.push_back(layer_of("Gemm", 16));
    if (normalized && i == 0) model.layers.push_back(layer_of("BatchNormalization"));
    model.layers.push_back(layer_of("Relu"));
  }
  model.layers.push_back(layer_of("Gemm"));
  return model;
}

/// Returns a model whose parameters outweigh its activations.
ModelSpec wide() {
  ModelSpec model;
  model.layers = {layer_of("Gemm", 600), layer_of("Relu"), layer_of("Gemm")};
  return model;
}

DatasetSchema digits() {
  DatasetSchema schema;
  schema.kind = DatasetSchema::Kind::kImage;
  schema.image = {1, 8, 8};
  for (int i = 0; i < 40; ++i) schema.target.classes.push_back(std::to_string(i));
  schema.train_rows = 1000;
  return schema;
}

Recipe adam(int64_t batch_size = 96) {
  Recipe r;
  r.epochs = 1;
  r.batch_size = batch_size;
  r.optimizer = default_optimizer("adam");
  return r;
}

RunPlan planned(const ModelSpec& model, Recipe recipe, const ShardingPlan& sharding,
                int64_t ranks) {
  set_sharding(sharding, recipe);
  return plan_run(model, recipe, digits(), ranks).value();
}
int64_t bytes_of(const ModelSpec& model, const Recipe& recipe, const ShardingPlan& sharding,
                 int64_t ranks = 1) {
  return device_bytes({}, planned(model, recipe, sharding, ranks));
}

ShardingQuery query_of(int64_t limit_bytes, int64_t ranks = 1) {
  ShardingQuery query;
  if (limit_bytes > 0) query.limit_bytes = limit_bytes;
  query.free = {true, true, true};
  query.ranks = ranks;
  return query;
}

ShardingPlans shardings_of(const ModelSpec& model, const Recipe& recipe,
                           const ShardingQuery& query) {
  return enumerate_sharding_plans(model, recipe, digits(), query).value();
}

const ShardingRow* find(const ShardingPlans& shardings, const ShardingPlan& sharding) {
  const auto row = std::ranges::find(shardings.rows, sharding, &ShardingRow::sharding);
  return row == shardings.rows.end() ? nullptr : &*row;
}

/// Returns a function that forecasts a second for a step, `recompute` more for each level of
/// recompute, and `micro_batches` more for each further micro-batch.
StepTimes times_by(double recompute, double micro_batches, double range = 0.1) {
  return [=](const Recipe& recipe, const RunPlan&) -> std::optional<TimeRange> {
    const double seconds = 1 + recompute * static_cast<double>(recipe.recompute) +
                           micro_batches * static_cast<double>(recipe.accumulate_steps - 1);
    return TimeRange{seconds, seconds * (1 - range), seconds * (1 + range)};
  };
}

/// Returns all sharding sets that are tried: unsharded, and each set.
std::vector<Shard> all_sets() {
  std::vector<Shard> sets = {Shard::kNone};
  for (const Shard set : shard_sets()) sets.push_back(set);
  return sets;
}

TEST(ShardSets, FollowTheirParts) {
  const std::vector<Shard> sets = shard_sets();
  for (const Shard set : {Shard::kOptimizer, Shard::kHead, kBoth}) {
    EXPECT_EQ(std::ranges::count(sets, set), 1) << name_of(set);
  }
  EXPECT_EQ(std::ranges::count(sets, Shard::kNone), 0);
  for (size_t i = 0; i < sets.size(); ++i) {
    for (size_t k = i + 1; k < sets.size(); ++k) {
      EXPECT_NE(sets[i] | sets[k], sets[i]) << name_of(sets[k]) << " behind " << name_of(sets[i]);
    }
  }
}

TEST(ShardingPlans, AreAllPlannedToTheByte) {
  const ShardingPlans found = shardings_of(wide(), adam(), query_of(0, 4));
  EXPECT_EQ(found.left_out, 0);
  ASSERT_TRUE(found.chosen.has_value());
  EXPECT_EQ(*found.chosen, ShardingPlan{}) << "a job that fits stays as it is";
  int64_t planned_rows = 0;
  for (const Shard shard : all_sets()) {
    for (const Recompute way : {Recompute::kNone, Recompute::kBlocks, Recompute::kFull}) {
      const ShardingPlan sharding{shard, way, 1};
      SCOPED_TRACE(name_of(shard) + " " + std::string(name_of(way)));
      const ShardingRow* row = find(found, sharding);
      Recipe recipe = adam();
      set_sharding(sharding, recipe);
      const Result<RunPlan> plan = plan_run(wide(), recipe, digits(), 4);
      if (!plan.ok()) {
        EXPECT_TRUE(row == nullptr || row->message == plan.error().message);
        continue;
      }
      ++planned_rows;
      ASSERT_NE(row, nullptr);
      EXPECT_EQ(row->bytes, device_bytes({}, *plan));
      int64_t sent = 0;
      for (const PlannedExchange& exchange : plan->exchanges) sent += exchange.sent_bytes;
      EXPECT_EQ(row->sent_bytes, sent);
      EXPECT_EQ(row->as_written, sharding == ShardingPlan{});
      EXPECT_EQ(row->verdict,
                sharding == ShardingPlan{} ? ShardingVerdict::kChosen : ShardingVerdict::kFits);
      EXPECT_FALSE(row->step.has_value());
    }
  }
  EXPECT_GE(planned_rows, 12);
  EXPECT_EQ(std::ranges::count_if(found.rows, [](const ShardingRow& row) { return row.bytes > 0; }),
            planned_rows);
  EXPECT_LE(found.programs, 3 * std::ssize(all_sets()));
}

TEST(ShardingPlans, OneDeviceHasNothingToShard) {
  const ShardingPlans found = shardings_of(wide(), adam(), query_of(0));
  EXPECT_EQ(found.rows.size(), 3u);
  for (const ShardingRow& row : found.rows) EXPECT_EQ(row.sharding.shard, Shard::kNone);
}

TEST(ShardingPlans, AreRankedWithTheirDifferences) {
  ShardingQuery query = query_of(0, 4);
  query.step_times = times_by(0.25, 0.5);
  const ShardingPlans found = shardings_of(wide(), adam(), query);
  EXPECT_EQ(found.rows.front().verdict, ShardingVerdict::kChosen);
  for (size_t i = 2; i < found.rows.size() && found.rows[i].step; ++i) {
    EXPECT_LE(found.rows[i - 1].step->seconds, found.rows[i].step->seconds);
  }
  EXPECT_TRUE(found.rows[11].step.has_value());
  EXPECT_EQ(find(found, {Shard::kNone, Recompute::kFull, 1})->message, "50% slower");
  EXPECT_EQ(find(found, {Shard::kOptimizer, Recompute::kNone, 1})->message, "as fast");

  // Recompute is faster than the job as written, which fits: at first by less than the forecast's
  // error, then by more.
  query.step_times = times_by(-0.05, 0);
  EXPECT_EQ(
      find(shardings_of(wide(), adam(), query), {Shard::kNone, Recompute::kBlocks, 1})->message,
      "5% faster, within the forecast's error");
  query.step_times = times_by(-0.2, 0);
  const ShardingPlans faster = shardings_of(wide(), adam(), query);
  EXPECT_EQ(find(faster, {Shard::kNone, Recompute::kBlocks, 1})->message,
            "20% faster: set it in the spec to use it");
  EXPECT_EQ(*faster.chosen, ShardingPlan{}) << "what fits as it is written stays so";
}

TEST(ShardingPlans, PlansThatDoNotFitSayByHowMuchAndSuggestMicroBatches) {
  const ModelSpec model = deep();
  const int64_t limit = bytes_of(model, adam(), {Shard::kNone, Recompute::kNone, 4});
  const ShardingPlans found = shardings_of(model, adam(), query_of(limit));
  const ShardingRow* whole = find(found, {});
  ASSERT_NE(whole, nullptr);
  EXPECT_EQ(whole->verdict, ShardingVerdict::kDoesNotFit);
  EXPECT_TRUE(whole->as_written);
  EXPECT_EQ(whole->message, human_bytes(bytes_of(model, adam(), {}) - limit) + " too large");
  const auto split = std::ranges::find_if(found.rows, [](const ShardingRow& row) {
    return row.sharding.recompute == Recompute::kNone && row.sharding.accumulate_steps > 1;
  });
  ASSERT_NE(split, found.rows.end());
  EXPECT_LE(split->bytes, limit);
  for (int64_t fewer = 2; fewer < split->sharding.accumulate_steps; ++fewer) {
    if (96 % fewer != 0) continue;
    EXPECT_GT(bytes_of(model, adam(), {Shard::kNone, Recompute::kNone, fewer}), limit) << fewer;
  }
  // Plans that fit by recompute alone need no micro-batches.
  for (const ShardingRow& row : found.rows) {
    if (row.sharding.accumulate_steps == 1) continue;
    ShardingPlan alone = row.sharding;
    alone.accumulate_steps = 1;
    EXPECT_EQ(find(found, alone)->verdict, ShardingVerdict::kDoesNotFit);
  }
}

TEST(ShardingPlans, AJobThatFitsOnlyShardedIsShardedAndOtherPlansSayWhyNot) {
  const Recipe recipe = adam(8);
  ShardingQuery query = query_of(0, 4);
  query.traits = {kCudaAlignment, Processor::kGpu};  // a GPU's plan excludes the host's copy
  const auto plan_with = [&](Shard shard) {
    Recipe changed = recipe;
    changed.shard = shard;
    return plan_run(wide(), changed, digits(), 4, query.traits).value();
  };
  query.limit_bytes = device_bytes(query.traits, plan_with(Shard::kOptimizer));
  ASSERT_GT(lasting_bytes(plan_with(Shard::kNone).memory), query.limit_bytes);
  const ShardingPlans found = shardings_of(wide(), recipe, query);
  ASSERT_TRUE(found.chosen.has_value());
  EXPECT_EQ(found.rows.front().sharding, *found.chosen);
  EXPECT_EQ(found.chosen->shard, Shard::kOptimizer);
  const ShardingRow* whole = find(found, {});
  EXPECT_NE(whole->message.find("of them at any batch size"), std::string::npos) << whole->message;
  for (const ShardingRow& row : found.rows) {
    EXPECT_TRUE(row.sharding.shard != Shard::kNone || row.sharding == ShardingPlan{})
        << "nothing would help";
  }
  query.limit_bytes = 1000;
  EXPECT_FALSE(shardings_of(wide(), recipe, query).chosen.has_value());
}

// Recompute changes no bit, but micro-batches do; so micro-batches come first only if they are
// certainly faster.
TEST(ShardingPlans, TheFirstPlanWithinTheForecastsErrorIsChosen) {
  const ModelSpec model = deep();
  const int64_t limit = std::max(bytes_of(model, adam(), {Shard::kNone, Recompute::kFull, 1}),
                                 bytes_of(model, adam(), {Shard::kNone, Recompute::kNone, 96}));
  ASSERT_LT(limit, bytes_of(model, adam(), {}));
  ShardingQuery query = query_of(limit);
  const ShardingPlan unknown = *shardings_of(model, adam(), query).chosen;
  EXPECT_NE(unknown.recompute, Recompute::kNone);
  EXPECT_EQ(unknown.accumulate_steps, 1);

  query.step_times = times_by(0.1, 0, 0.3);  // 9 % or 17 % slower is within the uncertainty
  ShardingPlans found = shardings_of(model, adam(), query);
  EXPECT_EQ(*found.chosen, unknown);
  EXPECT_FALSE(found.by_forecast);
  EXPECT_EQ(found.rows.front().message, "changes least of those about as fast as the fastest");

  query.step_times = times_by(0.5, 0.001);
  found = shardings_of(model, adam(), query);
  EXPECT_EQ(found.chosen->recompute, Recompute::kNone);
  EXPECT_GT(found.chosen->accumulate_steps, 1);
  EXPECT_TRUE(found.by_forecast);
  EXPECT_EQ(found.rows.front().message, "the fastest");

  query.step_times = times_by(0.01, 0.5);
  found = shardings_of(model, adam(), query);
  EXPECT_EQ(*found.chosen, unknown);
  EXPECT_FALSE(found.by_forecast);
}

// Choosing only compiles fewer programs than listing all plans, but makes the same choice, whether
// rates are known or not.
TEST(ShardingPlans, TheChoiceIsTheBestOfAllPlans) {
  for (const ModelSpec& model : {deep(), wide()}) {
    const int64_t whole = bytes_of(model, adam(), {}, 4);
    for (const StepTimes& times : {StepTimes(), times_by(0.5, 0.001), times_by(0.01, 0.5)}) {
      for (int part = 1; part <= 5; ++part) {
        ShardingQuery query = query_of(whole * part / 5, 4);
        query.step_times = times;
        const ShardingPlans all = shardings_of(model, adam(), query);
        query.until_chosen = true;
        const ShardingPlans some = shardings_of(model, adam(), query);
        EXPECT_EQ(some.chosen, all.chosen) << part;
        EXPECT_EQ(some.by_forecast, all.by_forecast) << part;
        EXPECT_LE(some.programs, all.programs) << part;
        EXPECT_TRUE(part < 5 || some.programs == 1) << "it fits as it is written";
      }
    }
  }
}

TEST(ShardingPlans, ARefusedPlanHasTheErrorOfASpecThatNamesIt) {
  Recipe recipe = adam();
  recipe.optimizer = default_optimizer("muon");
  Recipe named = recipe;
  named.shard = Shard::kOptimizer;
  const Result<RunPlan> refusal = plan_run(wide(), named, digits(), 4);
  ASSERT_FALSE(refusal.ok());
  ShardingQuery query = query_of(0, 4);
  const ShardingPlans found = shardings_of(wide(), recipe, query);
  const ShardingRow* row = find(found, {Shard::kOptimizer, Recompute::kNone, 1});
  ASSERT_NE(row, nullptr);
  EXPECT_EQ(row->verdict, ShardingVerdict::kRefused);
  EXPECT_EQ(row->message, refusal.error().message);
  EXPECT_EQ(row->bytes, 0);
  EXPECT_EQ(find(found, {kBoth, Recompute::kNone, 1}), nullptr) << "it would say the same";
  EXPECT_EQ(find(found, {Shard::kHead, Recompute::kNone, 1})->verdict, ShardingVerdict::kFits);

  query.check_shard = [](Shard shard) -> Status {
    if (shard == Shard::kOptimizer) return {};
    return make_error(ErrorCode::kInvalidArgument, "FIELD_CONFLICT", "resources.shard: not here");
  };
  const ShardingPlans forbidden = shardings_of(wide(), adam(), query);
  EXPECT_EQ(find(forbidden, {Shard::kHead, Recompute::kNone, 1})->message,
            "resources.shard: not here");
  EXPECT_EQ(forbidden.programs, 6) << "none and optimizer";
  for (const ShardingRow& other : forbidden.rows) {
    EXPECT_TRUE(other.bytes > 0 || shard_parts(other.sharding.shard).size() == 1)
        << name_of(other.sharding.shard) << ": a part of it has said so";
  }
}

TEST(ShardingPlans, FieldsOfTheSpecAreKept) {
  const ModelSpec model = deep();
  Recipe recipe = adam();
  recipe.shard = Shard::kHead;
  recipe.accumulate_steps = 2;
  ShardingQuery query = query_of(1000, 4);
  query.free = {true, false, false};
  for (const ShardingRow& row : shardings_of(model, recipe, query).rows) {
    EXPECT_EQ(row.sharding.shard, Shard::kHead);
    EXPECT_EQ(row.sharding.accumulate_steps, 2);
  }
  recipe.recompute = Recompute::kBlocks;
  query.free = {false, true, false};
  query.limit_bytes = bytes_of(model, recipe, sharding_of(recipe), 4) - 1;
  const ShardingPlans found = shardings_of(model, recipe, query);
  for (const ShardingRow& row : found.rows) EXPECT_EQ(row.sharding.recompute, Recompute::kBlocks);
  EXPECT_EQ(found.rows.size(), 2u);
}

TEST(ShardingPlans, MicroBatchesThatChangeTheResultAreShownAndNeverChosen) {
  const ModelSpec model = deep(/*normalized=*/true);
  ShardingQuery query = query_of(bytes_of(model, adam(), {Shard::kNone, Recompute::kNone, 4}));
  query.free.recompute = false;
  query.step_times = times_by(0, -0.01);
  const ShardingPlans found = shardings_of(model, adam(), query);
  EXPECT_FALSE(found.chosen.has_value());
  ASSERT_EQ(found.rows.size(), 2u);
  EXPECT_EQ(found.rows[0].verdict, ShardingVerdict::kChangesResult);
  EXPECT_GT(found.rows[0].sharding.accumulate_steps, 1);
  EXPECT_EQ(found.rows[0].message,
            "batch normalization computes its statistics over each micro-batch");
}

TEST(ShardingPlans, TheNumberOfCompiledProgramsIsBounded) {
  const Recipe recipe = adam(720);  // allows 29 numbers of micro-batches
  ShardingQuery query = query_of(lasting_bytes(planned(deep(), recipe, {}, 1).memory) + 1);
  const ShardingPlans one = shardings_of(deep(), recipe, query);
  EXPECT_FALSE(one.chosen.has_value());
  EXPECT_LE(one.programs, 3 + 3 * 5);
  query.ranks = 4;
  const ShardingPlans four = shardings_of(deep(), recipe, query);
  EXPECT_LE(four.programs, query.programs_max);
  EXPECT_EQ(four.left_out, 0);

  query.programs_max = 5;
  const ShardingPlans few = shardings_of(deep(), recipe, query);
  EXPECT_EQ(few.programs, 5);
  EXPECT_GT(few.left_out, 0);
  for (const ShardingRow& row : few.rows) EXPECT_GT(row.bytes, 0) << "it was not planned";
}

TEST(ShardingPlans, OfAVeryLargeNetworkAreFewer) {
  const Recipe recipe = adam(720);
  const RunPlan plan = planned(deep(), recipe, {}, 4);
  ShardingQuery query = query_of(lasting_bytes(plan.memory) + 1, 4);
  const int64_t all = shardings_of(deep(), recipe, query).programs;
  ASSERT_GT(all, 40);
  query.nodes_max = 30 * plan.work.nodes;
  EXPECT_EQ(shardings_of(deep(), recipe, query).programs, 30);
  query.nodes_max = plan.work.nodes;
  const ShardingPlans found = shardings_of(deep(), recipe, query);
  EXPECT_EQ(found.programs, kProgramsLeast);
  EXPECT_GT(found.left_out, 0);
}

TEST(ShardingPlans, ArePlannedWithoutDelayingOtherCalls) {
  std::stop_source stop;
  stop.request_stop();
  const auto stopped =
      enumerate_sharding_plans(deep(), adam(), digits(), query_of(0, 4), stop.get_token());
  ASSERT_FALSE(stopped.ok());
  EXPECT_EQ(stopped.error().reason, "STOPPED");
  // A stop is also noticed between two programs.
  std::stop_source later;
  ShardingQuery query = query_of(0, 4);
  query.step_times = [&](const Recipe&, const RunPlan&) -> std::optional<TimeRange> {
    later.request_stop();
    return std::nullopt;
  };
  const auto ended = enumerate_sharding_plans(deep(), adam(), digits(), query, later.get_token());
  ASSERT_FALSE(ended.ok());
  EXPECT_EQ(ended.error().code, ErrorCode::kCancelled);
}

TEST(ShardingPlans, AnInvalidSpecIsRefusedLikeAnyPlanOfIt) {
  Recipe recipe = adam(0);
  const auto found = enumerate_sharding_plans(deep(), recipe, digits(), query_of(0));
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().message, plan_run(deep(), recipe, digits()).error().message);
}

}  // namespace
}  // namespace trainyard
