// Tests of optimizer state that is sharded over several devices, which are host backends here: it
// must give the bits of unsharded state, use the planned memory, and load and write checkpoints of
// any number of devices.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <new>

#include "kernels/alignment.h"
#include "kernels/shard.h"
#include "src/graph/op.h"
#include "src/job/recipe.h"
#include "src/job/run_plan.h"
#include "src/job/train_job.h"
#include "src/planning/fit.h"
#include "src/planning/job_plan.h"
#include "src/planning/programs.h"
#include "src/runtime/host/host_memory.h"
#include "src/runtime/open_backend.h"
#include "src/train/replicated_session.h"
#include "src/train/trainer.h"
#include "tests/engine/fit_support.h"
#include "tests/engine/rank_support.h"
#include "tests/engine/train_support.h"

namespace trainyard {
namespace {

using testing::bytes_of;
using testing::connected;
using testing::cpu_devices;
using testing::make_dataset;
using testing::plain_job;
using testing::Recorder;
using testing::run;
using testing::small_devices;
using testing::weights_of;
using testing::Workspace;

using RecipeChange = std::function<void(Recipe&)>;

TEST(Shards, CoverATensorOnce) {
  for (const int64_t elements : {1, 5, 15, 16, 17, 31, 64, 100, 1025, 4096, 12345}) {
    for (const int64_t ranks : {1, 2, 3, 4, 7, 64}) {
      SCOPED_TRACE(std::to_string(elements) + " over " + std::to_string(ranks));
      const int64_t size = kernels::shard_elements(elements, ranks);
      int64_t next = 0;
      for (int64_t r = 0; r < ranks; ++r) {
        const kernels::ShardRange range = kernels::shard_range(elements, r, ranks);
        EXPECT_LE(range.count, size);
        EXPECT_EQ(range.first, next);
        EXPECT_TRUE(range.count == 0 || range.first % kernels::kShardStep == 0);
        next += range.count;
      }
      EXPECT_EQ(next, elements);
      EXPECT_LT(size, elements / ranks + 1 + kernels::kShardStep);
      EXPECT_LE(size, elements);
    }
  }
}

/// Runs the job with whole and with sharded state, on each number of ranks. Expects equal bits in
/// the result and the last checkpoint.
void expect_the_bits_of_whole_state(const RecipeChange& change, int64_t rows = 100) {
  const Workspace w;
  make_dataset(w, /*images=*/true, rows, 20);
  for (const int64_t ranks : {2, 4}) {
    SCOPED_TRACE(ranks);
    const auto job_of = [&](const std::string& kind, Shard shard) {
      TrainJob job = plain_job(w, kind + std::to_string(ranks));
      job.recipe.steps = 50;
      job.recipe.checkpoint_every_steps = 25;
      change(job.recipe);
      job.recipe.shard = shard;
      return job;
    };
    const TrainJob whole = job_of("whole", Shard::kNone);
    const TrainJob sharded = job_of("sharded", Shard::kOptimizer);
    Recorder of_whole, of_sharded;
    run(whole, ranks, of_whole);
    const TrainResult result = run(sharded, ranks, of_sharded);
    EXPECT_EQ(result.arena_planned_bytes, result.arena_used_bytes);
    EXPECT_GT(of_sharded.plan.shard_saved_bytes, 0);
    for (const auto& [key, values] : of_whole.series) {
      if (key == "train/samples_per_second" || key == "train/data_wait_share") continue;
      EXPECT_EQ(of_sharded.series[key], values) << key;
    }
    EXPECT_EQ(weights_of(sharded), weights_of(whole));
    for (const char* file : {"weights.safetensors", "optimizer.safetensors"}) {
      EXPECT_EQ(bytes_of(sharded.checkpoints / "step-000000050" / file),
                bytes_of(whole.checkpoints / "step-000000050" / file))
          << file;
    }
  }
}

RecipeChange recipe_optimizer(const char* type, double rate) {
  return [=](Recipe& recipe) {
    recipe.optimizer = default_optimizer(type);
    recipe.optimizer.learning_rate = rate;
    recipe.optimizer.weight_decay = 0.01;
  };
}

TEST(ShardedRanks, EqualWholeStateWithMomentum) {
  expect_the_bits_of_whole_state([](Recipe& recipe) { recipe.optimizer.nesterov = true; });
}
TEST(ShardedRanks, EqualWholeStateWithEverySupportedOptimizer) {
  for (const char* type : {"adam", "adamw", "lion"}) {
    SCOPED_TRACE(type);
    expect_the_bits_of_whole_state(recipe_optimizer(type, 0.002));
  }
  expect_the_bits_of_whole_state([](Recipe& recipe) {
    recipe_optimizer("rmsprop", 0.002)(recipe);
    recipe.optimizer.centered = true;
    recipe.optimizer.momentum = 0.5;
  });
}
TEST(ShardedRanks, EqualWholeStateWithClippingByNorm) {
  expect_the_bits_of_whole_state([](Recipe& recipe) {
    recipe_optimizer("adamw", 0.002)(recipe);
    recipe.clip_norm = 0.3;
    recipe.metrics = {"gradient_norm"};
  });
}
TEST(ShardedRanks, EqualWholeStateWithMicroBatchesAveragesAndFrozenLayers) {
  expect_the_bits_of_whole_state([](Recipe& recipe) {
    recipe_optimizer("adamw", 0.002)(recipe);
    recipe.accumulate_steps = 2;
    recipe.clip_norm = 0.3;
    recipe.ema_decay = 0.9;
    recipe.keep_best.metric = "val/loss";
    recipe.parameter_groups = {{.match = "conv*", .freeze = true},
                               {.match = "*.bias", .learning_rate_factor = 2}};
  });
  expect_the_bits_of_whole_state([](Recipe& recipe) { recipe.clip_value = 0.01; });
}
TEST(ShardedRanks, EqualWholeStateIn16Bits) {
  for (const Precision precision : {Precision::kBf16, Precision::kFp16}) {
    SCOPED_TRACE(std::string(name_of(precision)));
    expect_the_bits_of_whole_state([&](Recipe& recipe) {
      recipe_optimizer("adamw", 0.002)(recipe);
      recipe.precision = precision;
      recipe.clip_norm = 0.3;
    });
  }
}
TEST(ShardedRanks, EqualWholeStateWithLowRankAdditions) {
  expect_the_bits_of_whole_state([](Recipe& recipe) {
    recipe_optimizer("adamw", 0.01)(recipe);
    recipe.lora = {.rank = 2, .alpha = 4, .dropout = 0, .targets = {"gemm*"}};
  });
}

TEST(ShardedRanks, FollowTheCurveOfOneDevice) {
  const Workspace w;
  make_dataset(w, true, 100, 20);
  for (const char* type : {"sgd", "adamw"}) {
    SCOPED_TRACE(type);
    const auto job_of = [&](const std::string& name) {
      TrainJob job = plain_job(w, type + name);
      job.recipe.steps = 50;
      job.recipe.clip_norm = 1;
      if (type == std::string("adamw")) recipe_optimizer("adamw", 0.001)(job.recipe);
      return job;
    };
    Recorder expected, got;
    run(job_of("one"), 1, expected);
    TrainJob sharded = job_of("four");
    sharded.recipe.shard = Shard::kOptimizer;
    run(sharded, 4, got);
    ASSERT_EQ(got.series["train/loss"].size(), 50u);
    for (const auto& [step, loss] : expected.series["train/loss"]) {
      EXPECT_NEAR(got.series["train/loss"].at(step), loss, 1e-5) << step;
    }
  }
}

TEST(ShardedRanks, ResumeAsIfNeverStopped) {
  const Workspace w;
  make_dataset(w, true, 100);
  const auto job_of = [&](const std::string& name) {
    TrainJob job = plain_job(w, name);
    recipe_optimizer("adamw", 0.002)(job.recipe);
    job.recipe.clip_norm = 0.5;
    job.recipe.checkpoint_every_steps = 7;
    job.recipe.shard = Shard::kOptimizer;
    return job;
  };
  Recorder rw;
  run(job_of("whole"), 4, rw);
  const TrainJob parts = job_of("parts");
  std::stop_source stop;
  Recorder first, second;
  first.stop_step = 7;
  first.stop = &stop;
  EXPECT_EQ(train(parts, cpu_devices(4), local_files(), first, stop.get_token()).error().reason,
            "STOPPED");
  run(parts, 4, second);
  EXPECT_EQ(second.plan.first_step, 7);
  EXPECT_TRUE(second.lines.empty()) << second.lines.front();
  EXPECT_EQ(weights_of(parts), weights_of(job_of("whole")));
}

/// A part of a run, from checkpoint to checkpoint, on its own set of devices; travel() runs them in
/// sequence.
struct Leg {
  int64_t ranks;
  Shard shard;
  int64_t stop_step;  // 0: to the end
};
std::string travel(TrainJob job, const std::vector<Leg>& legs) {
  int64_t from = 0;
  for (const Leg& leg : legs) {
    job.recipe.shard = leg.shard;
    std::stop_source stop;
    Recorder recorder;
    recorder.stop_step = leg.stop_step;
    recorder.stop = &stop;
    const auto result =
        train(job, cpu_devices(leg.ranks), local_files(), recorder, stop.get_token());
    EXPECT_EQ(result.ok(), leg.stop_step == 0);
    EXPECT_EQ(recorder.plan.first_step, from);
    from = leg.stop_step;
  }
  return weights_of(job);
}

// A checkpoint has whole tensors, so the sharding of the run that wrote it does not matter.
TEST(ShardedRanks, CheckpointsResumeOnAnyDevicesShardedOrNot) {
  const Workspace w;
  make_dataset(w, true, 100);
  const auto job_of = [&](const std::string& name) {
    TrainJob job = plain_job(w, name);
    recipe_optimizer("adamw", 0.002)(job.recipe);
    job.recipe.clip_norm = 0.5;
    job.recipe.checkpoint_every_steps = 6;
    return job;
  };
  constexpr Shard kWhole = Shard::kNone, kSharded = Shard::kOptimizer;
  const std::string expected =
      travel(job_of("plain"), {{4, kWhole, 6}, {2, kWhole, 12}, {1, kWhole, 18}, {4, kWhole, 0}});
  EXPECT_EQ(travel(job_of("sharded"),
                   {{4, kSharded, 6}, {2, kWhole, 12}, {1, kWhole, 18}, {4, kSharded, 0}}),
            expected);
  EXPECT_EQ(travel(job_of("mixed"),
                   {{4, kWhole, 6}, {2, kSharded, 12}, {1, kWhole, 18}, {4, kSharded, 0}}),
            expected);
  // As long as the number of ranks is the same, the bits do not depend on which parts were sharded.
  const std::string never = travel(job_of("never"), {{4, kWhole, 0}});
  EXPECT_EQ(travel(job_of("often"), {{4, kSharded, 6}, {4, kWhole, 12}, {4, kSharded, 0}}), never);
}

/// Returns a wide model, most of whose memory is optimizer state.
TrainJob wide_job(const Workspace& w, const std::string& name, Shard shard) {
  TrainJob job = plain_job(w, name);
  job.model = {};
  job.model.layers = {{"", "Gemm", {}, {{"units", int64_t{1001}}}},
                      {"", "Relu", {}, {}},
                      {"", "Gemm", {}, {{"units", int64_t{500}}}},
                      {"", "Relu", {}, {}},
                      {"", "Gemm", {}, {}}};
  recipe_optimizer("adamw", 0.002)(job.recipe);
  job.recipe.steps = 3;
  job.recipe.shard = shard;
  return job;
}

TEST(ShardedRanks, StoreOnlyTheirPartOfTheState) {
  const Workspace w;
  make_dataset(w, true, 100);
  Recorder whole;
  run(wide_job(w, "whole", Shard::kNone), 4, whole);
  EXPECT_EQ(whole.plan.shard_saved_bytes, 0);
  for (const int64_t ranks : {2, 4}) {
    SCOPED_TRACE(ranks);
    Recorder sharded;
    const TrainResult result =
        run(wide_job(w, std::to_string(ranks), Shard::kOptimizer), ranks, sharded);
    EXPECT_EQ(result.arena_planned_bytes, result.arena_used_bytes);
    EXPECT_EQ(sharded.plan.memory.total(), result.arena_planned_bytes);
    // AdamW has two moments for each of six tensors.
    int64_t expected = 0;
    for (const int64_t elements : {1001 * 64, 1001, 500 * 1001, 500, 3 * 500, 3}) {
      expected += 2 * round_up(4 * kernels::shard_elements(elements, ranks), kHostAlignment);
    }
    EXPECT_EQ(sharded.plan.memory.optimizer_bytes, expected);
    EXPECT_EQ(sharded.plan.shard_saved_bytes, whole.plan.memory.optimizer_bytes - expected);
    EXPECT_LE(expected, whole.plan.memory.optimizer_bytes / ranks + 6 * 2 * 2 * kHostAlignment);
    // Sharding does not change the size of a checkpoint.
    EXPECT_EQ(sharded.plan.checkpoints.size_bytes, whole.plan.checkpoints.size_bytes);
  }
}

// Clipping must wait for all gradients; unsharded, they need as much memory as the weights.
TEST(ShardedRanks, ClipShardsAfterWholeGradientsAreFreed) {
  const Workspace w;
  make_dataset(w, true, 100);
  const auto gradient_bytes = [&](Shard shard) {
    TrainJob job = wide_job(w, "clipped", shard);
    job.model = {};
    job.model.preset = "mlp";
    job.model.parameters.set("hidden", std::vector<int64_t>(40, 2000));
    job.recipe.clip_norm = 1;
    const DatasetSchema schema = read_schema(job.dataset).value();
    return plan_run(job.model, job.recipe, schema, 4).value().memory.gradient_bytes;
  };
  EXPECT_LT(gradient_bytes(Shard::kOptimizer), gradient_bytes(Shard::kNone) * 6 / 10);
}

TEST(ShardedRanks, TrainAModelThatFitsNoDeviceWithWholeState) {
  const Workspace w;
  make_dataset(w, true, 100);
  const TrainJob whole = wide_job(w, "whole", Shard::kNone);
  const TrainJob sharded = wide_job(w, "sharded", Shard::kOptimizer);
  Recorder unbounded;
  const int64_t needed = run(whole, 2, unbounded).arena_planned_bytes;
  const auto devices = [&] {
    const int64_t limit = needed - unbounded.plan.memory.optimizer_bytes / 8;
    return small_devices(2, limit);
  };
  Recorder r, refused;
  std::filesystem::remove_all(whole.checkpoints);
  EXPECT_THROW((void)train(whole, devices(), local_files(), refused, {}), std::bad_alloc);
  const auto result = train(sharded, devices(), local_files(), r, {});
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(r.series["train/loss"], unbounded.series["train/loss"]);
}

TEST(ShardedRanks, AreChosenIfNothingElseMakesAJobFit) {
  const Workspace w;
  make_dataset(w, true, 100);
  const TrainJob job = wide_job(w, "job", Shard::kNone);
  const DatasetSchema schema = read_schema(job.dataset).value();
  const auto bytes = [&](const Recipe& recipe) {
    const RunPlan plan = plan_run(job.model, recipe, schema, 4).value();
    return plan.memory.total() + plan.host_bytes;
  };
  Recipe sharded = job.recipe;
  sharded.shard = Shard::kOptimizer;
  const int64_t limit = bytes(sharded);
  ASSERT_LT(limit, bytes(job.recipe));
  const auto find = [&](const Recipe& recipe, FitFreedom free, int64_t ranks) {
    return find_fit(job.model, recipe, schema, limit, free, ranks);
  };
  const FitFreedom all{true, true, true};
  const std::optional<Fit> fit = find(job.recipe, all, 4);
  ASSERT_TRUE(fit.has_value());
  EXPECT_EQ(fit->shard, Shard::kOptimizer);
  EXPECT_EQ(fit->recompute, Recompute::kNone);
  EXPECT_EQ(fit->accumulate_steps, 1);
  EXPECT_GT(fit->plan.shard_saved_bytes, 0);
  EXPECT_FALSE(find(job.recipe, {true, true, false}, 4).has_value()) << "shard: none was written";
  EXPECT_FALSE(find(job.recipe, all, 1).has_value()) << "there is nothing to share with";
  Recipe muon = job.recipe;
  muon.optimizer = default_optimizer("muon");
  EXPECT_NE(find(muon, all, 4).value_or(Fit{}).shard, Shard::kOptimizer);
  const FitAdvice advice = advise_fit(job.model, job.recipe, schema, limit, 4);
  EXPECT_EQ(advice.shard, Shard::kOptimizer);
  EXPECT_NE(describe(advice).find("resources.shard: optimizer"), std::string::npos);
}

// Recompute gives the same bits and needs no fast link between devices, so it is preferred.
TEST(ShardedRanks, AreNotChosenIfRecomputeSuffices) {
  const Workspace w;
  make_dataset(w, true, 100);
  TrainJob job = wide_job(w, "job", Shard::kNone);
  job.model = {};
  job.model.preset = "mlp";
  job.model.parameters.set("hidden", std::vector<int64_t>(16, 32));
  job.recipe.batch_size = 2048;
  DatasetSchema schema = read_schema(job.dataset).value();
  schema.train_rows = 4096;
  const RunPlan whole = plan_run(job.model, job.recipe, schema, 4).value();
  const std::optional<Fit> fit =
      find_fit(job.model, job.recipe, schema, whole.memory.total() + whole.host_bytes - 1,
               {true, true, true}, 4);
  ASSERT_TRUE(fit.has_value());
  EXPECT_EQ(fit->shard, Shard::kNone);
  EXPECT_NE(fit->recompute, Recompute::kNone);
}

TEST(ShardedRanks, PlanTheirExchange) {
  const Workspace w;
  make_dataset(w, true, 100);
  const TrainJob job = wide_job(w, "job", Shard::kNone);
  const DatasetSchema schema = read_schema(job.dataset).value();
  constexpr int64_t kBytes = 4 * (1001 * 64 + 1001 + 500 * 1001 + 500 + 3 * 500 + 3);
  const auto exchanges = [&](Shard shard, int64_t ranks) {
    Recipe recipe = job.recipe;
    recipe.shard = shard;
    return plan_run(job.model, recipe, schema, ranks).value().exchanges;
  };
  EXPECT_TRUE(exchanges(Shard::kNone, 1).empty());
  const auto whole = exchanges(Shard::kNone, 4);
  ASSERT_EQ(whole.size(), 1u);
  EXPECT_EQ(whole[0].kind, "all_reduce");
  EXPECT_EQ(whole[0].bytes, kBytes);
  EXPECT_EQ(whole[0].sent_bytes, kBytes * 3 / 2);
  const auto sharded = exchanges(Shard::kOptimizer, 4);
  ASSERT_EQ(sharded.size(), 2u);
  EXPECT_EQ(sharded[0].kind, "reduce_scatter");
  EXPECT_EQ(sharded[1].kind, "all_gather");
  for (const PlannedExchange& exchange : sharded) {
    EXPECT_EQ(exchange.bytes, kBytes) << exchange.kind;
    EXPECT_EQ(exchange.count, whole[0].count) << exchange.kind;
    EXPECT_EQ(exchange.sent_bytes, kBytes * 3 / 4) << exchange.kind;
  }
}

TEST(ShardedRanks, RefusalsNameTheFieldAndWhatIsAccepted) {
  const Workspace w;
  make_dataset(w, true, 100);
  TrainJob job = plain_job(w, "a");
  job.recipe.shard = Shard::kOptimizer;
  const DatasetSchema schema = read_schema(job.dataset).value();
  const auto refusal = [&](int64_t ranks) {
    const auto plan = plan_run(job.model, job.recipe, schema, ranks);
    return plan.ok() ? "" : plan.error().message;
  };
  EXPECT_EQ(refusal(2), "");
  EXPECT_EQ(
      refusal(1),
      "resources.shard: optimizer needs resources.gpus or resources.nodes above 1, expected one of "
      "these or shard: none");
  const std::string expected =
      ", expected shard: none, or as recipe.optimizer one of adam, adamw, lion, rmsprop, and sgd "
      "with momentum";
  for (const char* type : {"muon", "adafactor"}) {
    job.recipe.optimizer = default_optimizer(type);
    EXPECT_EQ(refusal(2),
              "resources.shard: " + std::string(type) + " updates tensors as a whole" + expected);
  }
  job.recipe.optimizer = default_optimizer("sgd");
  EXPECT_EQ(
      refusal(2),
      "resources.shard: sgd without momentum keeps no state that could be sharded" + expected);
}

// For any buckets: a shard is updated after its gradient's exchange, a parameter is gathered after
// its update, and nothing reads it afterwards.
TEST(ShardedRanks, ExchangesAreInTheRequiredOrder) {
  const Workspace w;
  make_dataset(w, true, 100);
  TrainJob job = wide_job(w, "job", Shard::kOptimizer);
  job.recipe.clip_norm = 1;
  const DatasetSchema schema = read_schema(job.dataset).value();
  for (const int64_t accumulate_steps : {1, 2}) {
    job.recipe.accumulate_steps = accumulate_steps;
    const RunShape shape = check_recipe(job.recipe, job.model, schema, 4).value();
    const RunPrograms first = compile_run(job.model, job.recipe, schema, shape, 0).value();
    const RunPrograms last = compile_run(job.model, job.recipe, schema, shape, 3).value();
    const auto updating = [](const RunPrograms& p) -> const Program& {
      return p.update.has_value() ? p.update->program : p.train.program;
    };
    verify(updating(first));
    EXPECT_EQ(updating(first).dump_memory(), updating(last).dump_memory()) << "ranks differ";
    EXPECT_EQ(exchanges_of(first), exchanges_of(last));
    EXPECT_EQ(exchanges_of(first).front(), "reduce_scatter_0/start");
    EXPECT_EQ(updating(first).graph.node(updating(first).order.back()).name, "all_gather/done");
  }
}

}  // namespace
}  // namespace trainyard
