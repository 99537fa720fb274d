// Tests of pairs of dense layers that are split by hidden unit over several devices, which are host
// backends here: they must reproduce the losses of one device, use the planned memory, and load and
// write checkpoints of any sharding.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "kernels/alignment.h"
#include "src/inference/predictor.h"
#include "src/job/recipe.h"
#include "src/job/run_plan.h"
#include "src/job/train_job.h"
#include "src/ops/activation.h"
#include "src/ops/all_reduce.h"
#include "src/ops/gemm.h"
#include "src/ops/row_exchange.h"
#include "src/planning/fit.h"
#include "src/planning/job_plan.h"
#include "src/planning/programs.h"
#include "src/runtime/communicator.h"
#include "src/train/trainer.h"
#include "tests/engine/fit_support.h"
#include "tests/engine/rank_support.h"
#include "tests/engine/split_support.h"
#include "tests/engine/train_support.h"

namespace trainyard {
namespace {

using testing::Change;
using testing::connected;
using testing::cpu_devices;
using testing::distance;
using testing::expect_the_curve;
using testing::expect_the_curve_over;
using testing::expect_the_same_bits_twice;
using testing::make_classes;
using testing::make_text;
using testing::optimizer;
using testing::RankLayout;
using testing::Recorder;
using testing::run;
using testing::small_devices;
using testing::weights_of;
using testing::Workspace;

constexpr Shard kWhole = Shard::kNone, kState = Shard::kOptimizer, kHead = Shard::kHead,
                kMlp = Shard::kMlp, kAll = Shard::kOptimizer | Shard::kHead | Shard::kMlp,
                kSharded = Shard::kMlp | Shard::kParameters,
                kEvery = Shard::kHead | Shard::kMlp | Shard::kParameters;

LayerSpec dense(const char* name, int64_t units) { return {name, "Gemm", {}, {{"units", units}}}; }
LayerSpec activation(const char* type) { return {"", type, {}, {}}; }

/// Sets a model of two layers with `units` hidden units between them, and a head.
void model_of(TrainJob& job, int64_t units, const char* type, int64_t width = 20) {
  job.model = {};
  job.model.layers = {dense("fc1", units),
                      activation(type),
                      dense("fc2", width),
                      activation("Relu"),
                      {"head", "Gemm", {}, {}}};
}

TrainJob job_on(const Workspace& w, const std::string& name, Shard shard,
                const Change& change = nullptr) {
  TrainJob job = testing::plain_job(w, name);
  model_of(job, 50, "Gelu");
  job.recipe.steps = 50;
  job.recipe.batch_size = 12;
  job.recipe.optimizer = default_optimizer("adamw");
  job.recipe.optimizer.learning_rate = 0.003;
  job.recipe.optimizer.weight_decay = 0.01;
  if (change) change(job);
  job.recipe.shard = shard;
  return job;
}

/// Runs the job on one device and with `pairs` split pairs on each number of ranks, and expects the
/// same loss curve.
void expect_the_curve_of_one_device(const Change& change, double bound = 1e-5,
                                    const std::vector<Shard>& shards = {kMlp, kAll},
                                    const std::vector<int64_t>& counts = {2, 4}, size_t pairs = 1) {
  const Workspace w;
  make_classes(w, 7, 120);
  Recorder expected;
  run(job_on(w, "one", kWhole, change), 1, expected);
  ASSERT_EQ(expected.series["train/loss"].size(), 50u);
  const auto job_of = [&](const std::string& name, Shard shard) {
    return job_on(w, name, shard, change);
  };
  testing::expect_the_curve_on(
      counts, shards, expected, bound, job_of,
      [&](const std::string&, const Recorder& got) { EXPECT_EQ(got.plan.pairs.size(), pairs); });
}

TEST(SplitMlp, FollowsTheCurveOfOneDevice) {
  expect_the_curve_of_one_device(nullptr, 1e-5,
                                 {kMlp, kState | kMlp, kHead | kMlp, kAll, kSharded, kEvery});
  expect_the_curve_of_one_device(optimizer("sgd", 0.02, 0.9));
}
// 50 units are divided into 17, 17 and 16; 5 units over 4 ranks into 2, 2, 1 and 0.
TEST(SplitMlp, FollowsTheCurveWithFewerUnitsThanRows) {
  expect_the_curve_of_one_device(nullptr, 1e-5, {kMlp, kAll}, {3});
  expect_the_curve_of_one_device([](TrainJob& job) { model_of(job, 5, "Tanh", 60); }, 1e-5,
                                 {kMlp, kAll}, {3, 4});
}
TEST(SplitMlp, FollowsTheCurveWithEverySupportedActivation) {
  for (const char* type : {"Relu", "Tanh", "Swish", "LeakyRelu", "Mish", "HardSwish"}) {
    SCOPED_TRACE(type);
    expect_the_curve_of_one_device([=](TrainJob& job) { model_of(job, 50, type); }, 1e-5, {kMlp},
                                   {4});
  }
  // These activations do not map 0 to 0, so the ranks must divide the units evenly, without
  // padding.
  for (const char* type : {"Sigmoid", "Softplus"}) {
    SCOPED_TRACE(type);
    expect_the_curve_of_one_device([=](TrainJob& job) { model_of(job, 48, type); }, 1e-5, {kMlp},
                                   {3, 4});
  }
}
TEST(SplitMlp, FollowsTheCurveWithEverySupportedOptimizer) {
  for (const char* type : {"adam", "lion", "rmsprop"}) {
    SCOPED_TRACE(type);
    expect_the_curve_of_one_device(optimizer(type, 0.001));
  }
  expect_the_curve_of_one_device(optimizer("sgd", 0.02), 1e-5, {kMlp, kHead | kMlp});
}
/// Sets two layers with `units` hidden units and a dropout between them, as in VGG's classifier.
Change dropped(int64_t units) {
  return [=](TrainJob& job) {
    model_of(job, units, "Relu", 24);
    job.model.layers.insert(job.model.layers.begin() + 2,
                            {"drop", "Dropout", {}, {{"ratio", 0.4}}});
  };
}
// Each rank must draw the same dropout for its units as one device does.
TEST(SplitMlp, FollowsTheCurveWithDropoutBetween) {
  expect_the_curve_of_one_device(dropped(48), 1e-5, {kMlp, kAll}, {2, 3, 4});
  expect_the_curve_of_one_device(
      [](TrainJob& job) {
        dropped(44)(job);  // 12 units on each rank but the last, which has 8
        job.recipe.batch_size = 24;
        job.recipe.accumulate_steps = 2;
        job.recipe.recompute = Recompute::kFull;
      },
      1e-5, {kMlp}, {4});
}
// If a rank's units are not a multiple of 4, the pair stays whole, and the next pair is tried. The
// evaluation program, which has no dropout, must be split the same way.
TEST(SplitMlp, DoesNotSplitAPairWhoseRandomDrawsCannotBeSplit) {
  const Workspace w;
  make_classes(w, 7, 120);
  Recorder expected, got;
  run(job_on(w, "one", kWhole, dropped(44)), 1, expected);
  run(job_on(w, "two", kMlp, dropped(44)), 3, got);
  ASSERT_EQ(got.plan.pairs.size(), 1u);
  EXPECT_EQ(got.plan.pairs[0].first, "fc2");
  EXPECT_EQ(got.plan.pairs[0].second, "head");
  expect_the_curve(expected, got, 1e-5);
}

/// The preset groups its layers into pairs: 1 and 2, 3 and the head.
TEST(SplitMlp, FollowsTheCurveWithSeveralPairs) {
  const auto three = [](TrainJob& job) {
    job.model = {};
    job.model.preset = "mlp";
    job.model.parameters.set("hidden", std::vector<int64_t>{40, 30, 36});
  };
  expect_the_curve_of_one_device(three, 1e-5, {kMlp}, {2, 3, 4}, 2);
  expect_the_curve_of_one_device(three, 1e-5, {kAll}, {2, 4}, 1);
}
// All weights belong to the pair, so no gradient is exchanged.
TEST(SplitMlp, FollowsTheCurveWithOnlyThePair) {
  expect_the_curve_of_one_device(
      [](TrainJob& job) {
        job.model.layers = {dense("fc1", 40), activation("Relu"), {"head", "Gemm", {}, {}}};
        for (const size_t i : {0, 2}) job.model.layers[i].attributes.set("bias", int64_t{0});
        job.recipe.clip_norm = 0.5;
      },
      1e-5, {kMlp, kState | kMlp});
}
TEST(SplitMlp, FollowsTheCurveWithClippedGradients) {
  expect_the_curve_of_one_device([](TrainJob& job) {
    job.recipe.clip_norm = 0.3;
    job.recipe.metrics = {"gradient_norm"};
  });
  expect_the_curve_of_one_device([](TrainJob& job) { job.recipe.clip_value = 0.01; });
}
TEST(SplitMlp, FollowsTheCurveWithMicroBatchesAveragesAndFrozenLayers) {
  expect_the_curve_of_one_device(
      [](TrainJob& job) {
        job.recipe.batch_size = 24;
        job.recipe.accumulate_steps = 2;
        job.recipe.clip_norm = 0.3;
        job.recipe.ema_decay = 0.9;
        job.recipe.keep_best.metric = "val/loss";
        job.recipe.parameter_groups = {{.match = "*.bias", .learning_rate_factor = 2}};
      },
      1e-5, {kMlp, kAll}, {2, 3, 4});
  for (const char* frozen : {"fc1.*", "fc2.*", "fc*"}) {
    SCOPED_TRACE(frozen);
    expect_the_curve_of_one_device([=](TrainJob& job) {
      job.recipe.parameter_groups = {{.match = frozen, .freeze = true}};
      job.recipe.clip_norm = 0.3;
    });
  }
  for (const Recompute recompute : {Recompute::kBlocks, Recompute::kFull}) {
    expect_the_curve_of_one_device([=](TrainJob& job) { job.recipe.recompute = recompute; });
  }
  expect_the_curve_of_one_device(
      [](TrainJob& job) {
        job.recipe.lora = {.rank = 2, .alpha = 4, .dropout = 0, .targets = {"head"}};
      },
      1e-5, {kMlp});
}
// The loss curve must equal that of one device, within the precision of 16 bits.
TEST(SplitMlp, FollowsTheCurveIn16Bits) {
  for (const Precision precision : {Precision::kBf16, Precision::kFp16}) {
    SCOPED_TRACE(std::string(name_of(precision)));
    expect_the_curve_of_one_device([&](TrainJob& job) { job.recipe.precision = precision; },
                                   precision == Precision::kFp16 ? 5e-3 : 3e-2);
  }
}

/// Returns a small transformer, each of whose blocks ends in a pair.
Change transformer(int64_t recompute = 0) {
  return [=](TrainJob& job) {
    job.model = {};
    job.model.preset = "gpt2";
    job.model.parameters.set("size", std::string("nano"));
    job.model.parameters.set("n_layer", int64_t{2});
    job.model.parameters.set("n_embd", int64_t{24});
    job.model.parameters.set("n_head", int64_t{2});
    job.recipe.optimizer.learning_rate = 0.001;
    job.recipe.recompute = static_cast<Recompute>(recompute);
    job.recipe.context_length = 6;
  };
}
TEST(SplitMlp, FollowsTheCurveInATransformer) {
  const Workspace w;
  make_text(w);
  Recorder expected;
  run(job_on(w, "one", kWhole, transformer()), 1, expected);
  ASSERT_EQ(expected.series["train/loss"].size(), 50u);
  for (const int64_t ranks : {2, 3, 4}) {
    for (const Shard shard : {kMlp, kState | kMlp}) {
      const std::string name = name_of(shard) + std::to_string(ranks);
      SCOPED_TRACE(name);
      Recorder got;
      run(job_on(w, name, shard, transformer()), ranks, got);
      expect_the_curve(expected, got, 1e-5);
      ASSERT_EQ(got.plan.pairs.size(), 2u);
      EXPECT_EQ(got.plan.pairs[1].first, "h1_mlp_fc");
      EXPECT_EQ(got.plan.pairs[1].second, "h1_mlp_proj");
      EXPECT_EQ(got.plan.pairs[1].units, 96);
    }
  }
  Recorder again;
  run(job_on(w, "again", kMlp, transformer(static_cast<int64_t>(Recompute::kBlocks))), 2, again);
  expect_the_curve(expected, again, 1e-5);
}

TEST(SplitMlp, GivesTheSameBitsTwiceAndAfterAResume) {
  const Workspace w;
  make_classes(w, 11, 120);
  const auto change = [](TrainJob& job) {
    job.recipe.clip_norm = 0.5;
    job.recipe.checkpoint_every_steps = 7;
  };
  for (const int64_t ranks : {2, 3, 4}) {
    for (const Shard shard : {kMlp, kAll}) {
      const std::string name = name_of(shard) + std::to_string(ranks);
      SCOPED_TRACE(name);
      const auto job_of = [&](const std::string& run) {
        return job_on(w, name + run, shard, change);
      };
      expect_the_same_bits_twice(job_of, ranks, 7);
    }
  }
}

// A checkpoint has whole tensors, so the sharding of the run that wrote it does not matter.
TEST(SplitMlp, CheckpointsResumeInAnyShardingPlan) {
  const Workspace w;
  make_classes(w, 7, 120);
  const auto change = [](TrainJob& job) {
    job.recipe.checkpoint_every_steps = 5;
    job.recipe.ema_decay = 0.9;
    job.recipe.clip_norm = 1;
  };
  const TrainJob one = job_on(w, "one", kWhole, change);
  Recorder expected;
  run(one, 1, expected);
  const std::vector<std::vector<RankLayout>> ways = {
      {{4, kMlp},
       {1, kWhole},
       {3, kAll},
       {2, kState},
       {3, kMlp},
       {2, kHead},
       {4, kEvery},
       {2, kMlp}},
      {{1, kWhole}, {3, kMlp}, {4, kWhole}, {4, kMlp}, {4, kSharded}, {2, kAll}, {1, kWhole}}};
  for (size_t i = 0; i < ways.size(); ++i) {
    const TrainJob job = job_on(w, "way" + std::to_string(i), kWhole, change);
    expect_the_curve_over(ways[i], 5, expected, job);
    EXPECT_LT(distance(job, one), 1e-4);
  }
}

// Sharding changes no initial value, and no rank writes to another rank's part.
TEST(SplitMlp, WeightsAreInitializedAsOnOneDevice) {
  const Workspace w;
  make_classes(w, 7, 120);
  const auto change = [](TrainJob& job) {
    job.recipe.steps = 1;
    job.recipe.optimizer = default_optimizer("sgd");
    job.recipe.optimizer.learning_rate = 1e-30;
  };
  const TrainJob one = job_on(w, "one", kWhole, change);
  Recorder r;
  run(one, 1, r);
  for (const int64_t ranks : {2, 3, 4}) {
    const TrainJob split = job_on(w, std::to_string(ranks), kMlp, change);
    run(split, ranks, r);
    EXPECT_EQ(weights_of(split), weights_of(one)) << ranks;
  }
}

TEST(SplitMlp, ModelsPredictLikeThoseOfOneDevice) {
  const Workspace w;
  make_classes(w, 7, 120);
  const TrainJob one = job_on(w, "one", kWhole), split = job_on(w, "split", kMlp);
  Recorder of_one, of_split;
  run(one, 1, of_one);
  run(split, 4, of_split);
  EXPECT_LT(distance(split, one), 1e-4);
  const auto backend = make_cpu_backend(1);
  const auto predictor = Predictor::open(split.model_output, *backend);
  ASSERT_TRUE(predictor.ok()) << predictor.error().message;
}

/// A model whose memory is mostly that of one pair of dense layers.
constexpr int64_t kUnits = 901, kWidth = 64;
Change wide() {
  return [](TrainJob& job) {
    model_of(job, kUnits, "Relu", kWidth);
    job.recipe.steps = 3;
  };
}

TEST(SplitMlp, RanksStoreOnlyTheirUnits) {
  const Workspace w;
  make_classes(w, 7, 120);
  Recorder whole;
  run(job_on(w, "whole", kWhole, wide()), 4, whole);
  EXPECT_EQ(whole.plan.mlp_saved_bytes, 0);
  EXPECT_TRUE(whole.plan.pairs.empty());
  const auto padded = [](int64_t elements) { return round_up(4 * elements, kHostAlignment); };
  const int64_t rest = 2 * padded(kWidth) - padded(kWidth) + padded(7 * kWidth) + padded(7);
  for (const int64_t ranks : {2, 3, 4}) {
    SCOPED_TRACE(ranks);
    Recorder split;
    const TrainResult result = run(job_on(w, std::to_string(ranks), kMlp, wide()), ranks, split);
    EXPECT_EQ(result.arena_planned_bytes, result.arena_used_bytes);
    EXPECT_EQ(split.plan.memory.total(), result.arena_planned_bytes);
    const int64_t units = (kUnits + ranks - 1) / ranks;
    const int64_t pair = padded(8 * units) + padded(units) + padded(kWidth * units);
    const MemoryBreakdown &part = split.plan.memory, &all = whole.plan.memory;
    EXPECT_EQ(part.parameter_bytes, rest + pair);
    EXPECT_EQ(part.optimizer_bytes, 2 * (rest + pair));
    EXPECT_EQ(split.plan.mlp_saved_bytes, all.parameter_bytes - part.parameter_bytes);
    EXPECT_EQ(split.plan.head_saved_bytes, 0);
    EXPECT_EQ(split.plan.shard_saved_bytes, all.optimizer_bytes - part.optimizer_bytes);
    ASSERT_EQ(split.plan.pairs.size(), 1u);
    EXPECT_EQ(split.plan.pairs[0].saved_bytes,
              split.plan.mlp_saved_bytes + split.plan.shard_saved_bytes);
    EXPECT_LT(result.arena_planned_bytes, all.total() * 5 / (4 * ranks));
    EXPECT_EQ(split.plan.checkpoints.size_bytes, whole.plan.checkpoints.size_bytes);
    EXPECT_LT(split.plan.flops_per_step, whole.plan.flops_per_step) << "one update of the pair";
  }
}

TEST(SplitMlp, TrainsAModelWhosePairFitsNoDevice) {
  const Workspace w;
  make_classes(w, 7, 120);
  // The weights, gradients and state exceed the memory of a device.
  constexpr int64_t kLimit = 4 * kUnits * (kWidth + 9) * 3;
  Recorder unbounded, refused, r;
  run(job_on(w, "unbounded", kWhole, wide()), 1, unbounded);
  EXPECT_GT(unbounded.plan.memory.parameter_bytes + unbounded.plan.memory.optimizer_bytes, kLimit);
  EXPECT_THROW((void)train(job_on(w, "whole", kWhole, wide()), small_devices(4, kLimit),
                           local_files(), refused, {}),
               std::bad_alloc);
  const auto result =
      train(job_on(w, "split", kMlp, wide()), small_devices(4, kLimit), local_files(), r, {});
  ASSERT_TRUE(result.ok()) << result.error().message;
  expect_the_curve(unbounded, r, 1e-5);
}

TEST(SplitMlp, IsChosenIfNothingElseMakesAJobFit) {
  const Workspace w;
  make_classes(w, 7, 120);
  const TrainJob job = job_on(w, "job", kWhole, wide());
  const DatasetSchema schema = read_schema(job.dataset).value();
  const auto bytes = [&](Shard shard) {
    Recipe recipe = job.recipe;
    recipe.shard = shard;
    const RunPlan plan = plan_run(job.model, recipe, schema, 4).value();
    return plan.memory.total() + plan.host_bytes;
  };
  ASSERT_LT(bytes(kMlp), bytes(kState | kHead));
  const auto fit = find_fit(job.model, job.recipe, schema, bytes(kMlp), {true, true, true}, 4);
  ASSERT_TRUE(fit.has_value());
  EXPECT_EQ(fit->shard, kMlp);
  EXPECT_GT(fit->plan.mlp_saved_bytes, 0);
  EXPECT_EQ(advise_fit(job.model, job.recipe, schema, bytes(kMlp), 4).shard, kMlp);
  const auto less = find_fit(job.model, job.recipe, schema, bytes(kState), {true, true, true}, 4);
  ASSERT_TRUE(less.has_value());
  EXPECT_EQ(less->shard, kState) << "it is the smaller change";
  const bool one_node = false;
  EXPECT_EQ(advise_fit(job.model, job.recipe, schema, bytes(kMlp), 4, {}, {}, one_node).shard,
            kWhole)
      << "layers are split within a node";
}

TEST(SplitMlp, PlansTheExchangeOfRanks) {
  const Workspace w;
  make_classes(w, 7, 120);
  TrainJob job = job_on(w, "job", kMlp, [](TrainJob& changed) {
    changed.model.layers.insert(changed.model.layers.begin(),
                                {dense("in", 10), activation("Tanh")});
    changed.model.layers[0].name = "in";
    changed.recipe.batch_size = 16;
  });
  const DatasetSchema schema = read_schema(job.dataset).value();
  for (const int64_t accumulate_steps : {1, 2}) {
    SCOPED_TRACE(accumulate_steps);
    job.recipe.accumulate_steps = accumulate_steps;
    const RunPlan plan = plan_run(job.model, job.recipe, schema, 4).value();
    // "in" (8 inputs, 10 outputs) and fc1 (50 outputs) are the first pair, fc2 (20 outputs) and the
    // head (7 outputs) the second.
    ASSERT_EQ(plan.pairs.size(), 2u);
    EXPECT_EQ(plan.pairs[0].first + plan.pairs[0].second, "infc1");
    EXPECT_EQ(plan.pairs[1].first + plan.pairs[1].second, "fc2head");
    // x, y and dy of 16 rows, and dx if weights before the pair need it.
    EXPECT_EQ(plan.pairs[0].exchanged_bytes, 4 * 16 * (8 + 50 + 50));
    EXPECT_EQ(plan.pairs[1].exchanged_bytes, 4 * 16 * (50 + 7 + 7 + 50));
    ASSERT_EQ(plan.exchanges.size(), 3u);
    EXPECT_EQ(plan.exchanges[0].kind, "gather_rows");
    EXPECT_EQ(plan.exchanges[0].count, 4 * accumulate_steps);
    EXPECT_EQ(plan.exchanges[0].bytes, 4 * 16 * (8 + 50 + 50 + 7));
    EXPECT_EQ(plan.exchanges[0].sent_bytes, 4 * 16 * (8 + 50 + 50 + 7) * 3 / 4);
    EXPECT_EQ(plan.exchanges[1].kind, "scatter_rows");
    EXPECT_EQ(plan.exchanges[1].count, 3 * accumulate_steps);
    EXPECT_EQ(plan.exchanges[1].bytes, 4 * 16 * (50 + 7 + 50));
    EXPECT_EQ(plan.exchanges[2].kind, "all_reduce");
    EXPECT_EQ(plan.exchanges[2].bytes, 4 * (50 + 7)) << "the biases behind the pairs alone";
  }
}

// The rule of split_mlp.h is tested at its limit: 4 P for weights, gradients and state against R (2
// D + D').
TEST(SplitMlp, SplitsIfThatSavesMemory) {
  const Workspace w;
  make_classes(w, 7, 600);
  // P = 50 (8 + 1 + 20) = 1,450; 2 D + D' = 36; the limit is 161.1 rows.
  const auto pairs = [&](int64_t rows, int64_t accumulate_steps = 1) {
    TrainJob job = job_on(w, "job", kMlp);
    job.recipe.batch_size = rows;
    job.recipe.accumulate_steps = accumulate_steps;
    const auto plan = plan_run(job.model, job.recipe, read_schema(job.dataset).value(), 2);
    return plan.ok() ? std::to_string(plan->pairs.size()) : plan.error().message;
  };
  EXPECT_EQ(pairs(160), "1");
  EXPECT_EQ(
      pairs(162),
      "resources.shard: mlp would save no memory: fc1 and fc2, which come closest, have 5800 "
      "weights, gradients and state values, but 5832 values of rows would have to be gathered from "
      "other ranks; a smaller recipe.batch_size or more recipe.accumulate_steps makes the "
      "rows fewer, expected shard: optimizer or none");
  EXPECT_EQ(pairs(320, 2), "1");
}

// VGG's first two dense layers, with ReLU and dropout between them, are a pair; the third has no
// partner.
TEST(SplitMlp, FindsTheClassifierOfVgg) {
  ModelSpec model;
  model.preset = "vgg11";
  model.parameters.set("width", int64_t{8});
  Recipe recipe;
  recipe.batch_size = 4;
  recipe.shard = kMlp;
  const ModelInterface interface { {3, 32, 32}, 0, TargetForm::kClass, 10 };
  const auto programs = compile_step(model, recipe, interface, {1, 2});
  ASSERT_TRUE(programs.ok()) << programs.error().message;
  ASSERT_EQ(programs->pairs.size(), 1u);
  EXPECT_EQ(programs->pairs[0].first, "classifier/0");
  EXPECT_EQ(programs->pairs[0].second, "classifier/3");
  EXPECT_EQ(programs->pairs[0].units, 64);
}

// All ranks run the same program with the same memory layout, and every exchange has its own
// number.
TEST(SplitMlp, RanksDifferOnlyByAttributes) {
  const Workspace w;
  make_classes(w, 5, 120);
  TrainJob job = job_on(w, "job", kAll, [](TrainJob& changed) {
    changed.model = {};
    changed.model.preset = "mlp";
    changed.model.parameters.set("hidden", std::vector<int64_t>{40, 30, 36, 20});
    changed.recipe.batch_size = 16;
  });
  job.recipe.clip_norm = 1;
  const DatasetSchema schema = read_schema(job.dataset).value();
  for (const int64_t accumulate_steps : {1, 2}) {
    job.recipe.accumulate_steps = accumulate_steps;
    const RunShape shape = check_recipe(job.recipe, job.model, schema, 4).value();
    const RunPrograms first = compile_run(job.model, job.recipe, schema, shape, 0).value();
    const RunPrograms last = compile_run(job.model, job.recipe, schema, shape, 3).value();
    EXPECT_EQ(first.pairs.size(), 2u);
    EXPECT_EQ(first.pairs, last.pairs);
    EXPECT_EQ(first.train.program.dump_memory(), last.train.program.dump_memory());
    EXPECT_EQ(first.evaluate->program.dump_memory(), last.evaluate->program.dump_memory());
    EXPECT_EQ(exchanges_of(first, accumulate_steps), exchanges_of(last, accumulate_steps));
    std::set<int64_t> numbers;
    for (const Node& node : first.train.program.graph.nodes()) {
      if (!starts_exchange(node.op->type())) continue;
      EXPECT_TRUE(numbers.insert(node.attributes.get_int("bucket", -1)).second) << node.name;
    }
    EXPECT_GE(numbers.size(), 10u);
  }
}

// A graph refuses a node that would read a shard as a whole tensor or the reverse.
TEST(SplitMlp, GraphsRefuseAConversionThatIsNotPlanned) {
  Graph graph;
  const auto add = [&](const char* name, Shape shape, Spread spread) {
    TensorInfo info{name, {std::move(shape), DType::kF32}, Role::kInput, Layout::kRowMajor, kNoNode,
                    {}};
    info.spread = spread;
    return graph.add_tensor(std::move(info));
  };
  const Attributes product{{"transB", int64_t{1}}},
      rows{{"bucket", int64_t{1}}, {"ranks", int64_t{2}}};
  const TensorId x = add("x", {4, 3}, Spread::kOwn), all = add("all", {8, 3}, Spread::kGathered);
  const TensorId w1 = add("w1", {5, 3}, Spread::kUnits), b1 = add("b1", {5}, Spread::kUnits);
  const TensorId w2 = add("w2", {6, 5}, Spread::kUnits), b2 = add("b2", {6}, Spread::kOwn);
  const TensorId classes = add("classes", {5, 3}, Spread::kClasses);
  const TensorId of_classes = add("of classes", {6, 5}, Spread::kClasses);
  const auto given = [&](const char* name, const Op& op, const Attributes& attributes,
                         std::vector<TensorId> inputs) {
    return graph.node(graph.add_node(name, op, attributes, std::move(inputs), {name}).value())
        .outputs[0];
  };
  const auto refused = [&](const char* name, const Op& op, const Attributes& attributes,
                           std::vector<TensorId> inputs) {
    const auto node = graph.add_node(name, op, attributes, std::move(inputs), {name});
    EXPECT_FALSE(node.ok()) << name;
    return node.ok() ? "" : node.error().reason;
  };
  const TensorId units = given("units", *gemm_op(), product, {all, w1, b1});
  EXPECT_EQ(graph.tensor(units).spread, Spread::kUnits);
  const TensorId active = given("active", get_op("Relu"), {}, {units});
  EXPECT_EQ(graph.tensor(active).spread, Spread::kUnits);
  const TensorId summand = given("summand", *gemm_op(), product, {active, w2});
  EXPECT_EQ(graph.tensor(summand).spread, Spread::kSummand);
  const TensorId y = given("y", *scatter_rows_op(), rows, {summand});
  EXPECT_EQ(graph.tensor(y).spread, Spread::kOwn);
  const std::string mismatch = "SHARDING_UNSUPPORTED";
  EXPECT_EQ(refused("own rows by units", *gemm_op(), product, {x, w1}), mismatch);
  EXPECT_EQ(refused("units and classes", *gemm_op(), product, {active, of_classes}), mismatch);
  EXPECT_EQ(refused("a whole bias of units", *gemm_op(), product, {all, classes, b1}), mismatch);
  EXPECT_EQ(refused("a bias of each rank", *gemm_op(), product, {active, w2, b2}), mismatch);
  EXPECT_EQ(refused("relu of summands", get_op("Relu"), {}, {summand}), mismatch);
  EXPECT_EQ(refused("units beside rows", get_op("ReluGrad"), {},
                    {units, add("dy", {8, 5}, Spread::kGathered)}),
            mismatch);
  EXPECT_EQ(refused("mean of units", *all_reduce_start_op(), {{"bucket", int64_t{0}}}, {w1}),
            mismatch);
  EXPECT_EQ(refused("rows of units", *gather_rows_op(), rows, {active}), mismatch);
  graph.verify();
}

TEST(SplitMlp, RefusalsNameTheFieldAndWhatIsAccepted) {
  const Workspace w;
  make_classes(w, 5, 120);
  const auto refusal = [&](int64_t ranks, const Change& change, Shard shard = kMlp) {
    const TrainJob job = job_on(w, "a", shard, change);
    const auto plan = plan_run(job.model, job.recipe, read_schema(job.dataset).value(), ranks);
    return plan.ok() ? "" : plan.error().message;
  };
  EXPECT_EQ(refusal(2, nullptr), "");
  EXPECT_EQ(refusal(1, nullptr),
            "resources.shard: mlp needs resources.gpus above 1, expected that or shard: none");
  for (const std::string type : {"adafactor", "muon"}) {
    EXPECT_EQ(refusal(2, optimizer(type.c_str(), 0.01)),
              "resources.shard: mlp needs an optimizer that updates parts of a layer's weights by "
              "themselves, and " +
                  type +
                  " updates tensors as a whole; expected shard: none, or another "
                  "recipe.optimizer");
  }
  EXPECT_EQ(refusal(2, optimizer("sgd", 0.01), kState | kMlp),
            "resources.shard: sgd without momentum keeps no state that could be sharded, expected "
            "shard: none or mlp, or as recipe.optimizer one of adam, adamw, lion, rmsprop, and sgd "
            "with momentum");
  const std::string none =
      "resources.shard: mlp splits pairs of gemm or linear layers with only activations and "
      "dropout between them, whose weights no other layer and no recipe.lora uses, and the model "
      "has none, expected shard: optimizer or none";
  EXPECT_EQ(refusal(2, [](TrainJob& job) { job.model.layers = {{"head", "Gemm", {}, {}}}; }), none);
  EXPECT_EQ(
      refusal(
          2,  // the only pair includes the head, which is already split by class
          [](TrainJob& job) {
            job.model.layers = {dense("fc1", 40), activation("Relu"), {"head", "Gemm", {}, {}}};
          },
          kHead | kMlp),
      none);
  EXPECT_EQ(refusal(3, [](TrainJob& job) { model_of(job, 50, "Sigmoid"); }), "")
      << "fc2 and the head are left";
  EXPECT_EQ(refusal(
                3, [](TrainJob& job) { model_of(job, 50, "Sigmoid"); }, kHead | kMlp),
            none);
  EXPECT_EQ(refusal(2,
                    [](TrainJob& job) {
                      job.recipe.lora = {.rank = 2, .alpha = 2, .dropout = 0, .targets = {"*"}};
                    }),
            none);
}

}  // namespace
}  // namespace trainyard
