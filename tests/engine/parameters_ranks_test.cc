// Tests of parameters that are sharded over several devices, which are host backends here, and
// gathered where they are read: they must give the bits of plain data parallelism, use the planned
// memory, and load and write checkpoints of any sharding. The tests catch a gather that comes too
// late or whose result is read too long, a gradient that outlives its exchange, a shard that is
// mistaken for a whole tensor.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <new>

#include "kernels/alignment.h"
#include "kernels/shard.h"
#include "src/graph/op.h"
#include "src/job/recipe.h"
#include "src/job/run_plan.h"
#include "src/job/train_job.h"
#include "src/ops/activation.h"
#include "src/ops/shards.h"
#include "src/planning/fit.h"
#include "src/planning/job_plan.h"
#include "src/planning/programs.h"
#include "src/train/replicated_session.h"
#include "src/train/trainer.h"
#include "tests/engine/fit_support.h"
#include "tests/engine/rank_support.h"
#include "tests/engine/split_support.h"
#include "tests/engine/train_support.h"

namespace trainyard {
namespace {

using testing::bytes_of;
using testing::Change;
using testing::connected;
using testing::cpu_devices;
using testing::expect_to_resume;
using testing::go_on;
using testing::image_model;
using testing::make_dataset;
using testing::make_text;
using testing::plain_job;
using testing::RankLayout;
using testing::Recorder;
using testing::run;
using testing::small_devices;
using testing::weights_of;
using testing::Workspace;

constexpr Shard kUnsharded = Shard::kNone, kParameters = Shard::kParameters,
                kHeadToo = Shard::kHead | Shard::kParameters;

TrainJob job_on(const Workspace& w, const std::string& name, Shard shard,
                const Change& change = nullptr) {
  TrainJob job = plain_job(w, name);
  job.recipe.steps = 24;
  job.recipe.batch_size = 24;  // divisible by 2, 3 and 4 ranks
  job.recipe.checkpoint_every_steps = 12;
  job.recipe.optimizer = default_optimizer("adamw");
  job.recipe.optimizer.learning_rate = 0.002;
  job.recipe.optimizer.weight_decay = 0.01;
  if (change) change(job);
  job.recipe.shard = shard;
  return job;
}

/// Sets two layers with weights of several sizes: some are divided evenly, some unevenly, and some
/// are so small that a rank has none.
Change mlp(const Change& more = nullptr) {
  return [=](TrainJob& job) {
    job.model = {};
    job.model.layers = {{"", "Gemm", {}, {{"units", int64_t{33}}}},
                        {"", "Tanh", {}, {}},
                        {"", "Gemm", {}, {{"units", int64_t{20}}}},
                        {"", "Relu", {}, {}},
                        {"head", "Gemm", {}, {}}};
    if (more) more(job);
  };
}
Change transformer(const Change& more = nullptr) {
  return [=](TrainJob& job) {
    job.model = {};
    job.model.preset = "gpt2";
    job.model.parameters = {{"size", std::string("nano")}, {"n_layer", int64_t{2}}};
    job.recipe.context_length = 12;
    if (more) more(job);
  };
}

/// Runs the job with whole parameters and with shards, on each number of ranks. Expects equal bits
/// in the reports, the result and the last checkpoint.
void expect_the_same_bits(const Change& change, bool text = false) {
  const Workspace w;
  text ? make_text(w) : void(make_dataset(w, /*images=*/true, 100, 20));
  for (const int64_t ranks : {2, 3, 4}) {
    SCOPED_TRACE(ranks);
    const TrainJob whole = job_on(w, "whole" + std::to_string(ranks), kUnsharded, change);
    const TrainJob sharded = job_on(w, "sharded" + std::to_string(ranks), kParameters, change);
    Recorder of_whole, of_sharded;
    run(whole, ranks, of_whole);
    const TrainResult result = run(sharded, ranks, of_sharded);
    EXPECT_EQ(result.arena_planned_bytes, result.arena_used_bytes);
    EXPECT_EQ(of_sharded.plan.memory.total(), result.arena_planned_bytes);
    EXPECT_GT(of_sharded.plan.parameter_saved_bytes, 0);
    EXPECT_EQ(of_sharded.plan.memory.parameter_bytes + of_sharded.plan.parameter_saved_bytes,
              of_whole.plan.memory.parameter_bytes);
    EXPECT_EQ(of_sharded.plan.parameter_count, of_whole.plan.parameter_count);
    EXPECT_EQ(of_sharded.plan.checkpoints.size_bytes, of_whole.plan.checkpoints.size_bytes);
    ASSERT_EQ(of_whole.series["train/loss"].size(), 24u);
    for (const auto& [key, values] : of_whole.series) {
      if (key == "train/samples_per_second" || key == "train/data_wait_share") continue;
      EXPECT_EQ(of_sharded.series[key], values) << key;
    }
    EXPECT_TRUE(weights_of(sharded) == weights_of(whole));
    for (const char* file : {"weights.safetensors", "optimizer.safetensors"}) {
      EXPECT_TRUE(bytes_of(sharded.checkpoints / "step-000000024" / file) ==
                  bytes_of(whole.checkpoints / "step-000000024" / file))
          << file;
    }
  }
}

TEST(ParameterRanks, EqualWholeParametersInAnMlp) { expect_the_same_bits(mlp()); }
TEST(ParameterRanks, EqualWholeParametersWithEverySupportedOptimizer) {
  for (const char* type : {"sgd", "adam", "lion", "rmsprop"}) {
    SCOPED_TRACE(type);
    expect_the_same_bits(mlp([&](TrainJob& job) {
      job.recipe.optimizer = default_optimizer(type);
      job.recipe.optimizer.learning_rate = 0.002;
    }));
  }
}
TEST(ParameterRanks, EqualWholeParametersInAConvolutionalNetworkWithBatchNormalizationAndDropout) {
  expect_the_same_bits([](TrainJob& job) { job.model = image_model(); });
}
// The embedding and the head share one table.
TEST(ParameterRanks, EqualWholeParametersInATransformer) {
  expect_the_same_bits(transformer(), true);
}
TEST(ParameterRanks, EqualWholeParametersWithRecompute) {
  for (const Recompute recompute : {Recompute::kBlocks, Recompute::kFull}) {
    expect_the_same_bits(transformer([&](TrainJob& job) { job.recipe.recompute = recompute; }),
                         true);
  }
}
TEST(ParameterRanks, EqualWholeParametersWithClippingAndAverages) {
  expect_the_same_bits(mlp([](TrainJob& job) {
    job.recipe.clip_norm = 0.3;
    job.recipe.metrics = {"gradient_norm"};
    job.recipe.ema_decay = 0.9;
    job.recipe.keep_best.metric = "val/loss";
  }));
  expect_the_same_bits(mlp([](TrainJob& job) { job.recipe.clip_value = 0.01; }));
}
TEST(ParameterRanks, EqualWholeParametersWithFrozenLayersAndLowRankAdditions) {
  expect_the_same_bits(mlp([](TrainJob& job) {
    job.recipe.parameter_groups = {{.match = "gemm1.*", .freeze = true},
                                   {.match = "*.bias", .learning_rate_factor = 2}};
  }));
  expect_the_same_bits(mlp([](TrainJob& job) {
    job.recipe.lora = {.rank = 2, .alpha = 4, .dropout = 0, .targets = {"gemm*"}};
  }));
}
// Each rank takes its shard of every part of a file's weights.
TEST(ParameterRanks, EqualWholeParametersFromInitialWeights) {
  const Workspace w;
  make_dataset(w, true, 100, 20);
  const TrainJob first = job_on(w, "first", kUnsharded, mlp());
  Recorder recorder;
  run(first, 1, recorder);
  expect_the_same_bits(mlp([&](TrainJob& job) {
    job.recipe.initial_weights.source = "first";
    job.initial_weights = first.model_output / "model.safetensors";
  }));
}
TEST(ParameterRanks, EqualWholeParametersIn16Bits) {
  for (const Precision precision : {Precision::kBf16, Precision::kFp16}) {
    SCOPED_TRACE(std::string(name_of(precision)));
    const auto change = [&](TrainJob& job) {
      job.recipe.precision = precision;
      job.recipe.clip_norm = 0.3;
    };
    expect_the_same_bits(mlp(change));
    expect_the_same_bits(transformer(change), true);
  }
}

/// Expects all losses of the two runs to agree within the bound.
void expect_near_losses(const Recorder& expected, const Recorder& got, double bound) {
  for (const char* key : {"train/loss", "val/loss"}) {
    const auto& values = expected.series.at(key);
    ASSERT_EQ(got.series.at(key).size(), values.size()) << key;
    for (const auto& [step, loss] : values) {
      EXPECT_NEAR(got.series.at(key).at(step), loss, bound) << key << " of step " << step;
    }
  }
}

TEST(ParameterRanks, FollowTheCurveOfOneDevice) {
  const Workspace w;
  make_dataset(w, true, 100, 20);
  const auto long_run = mlp([](TrainJob& job) {
    job.recipe.steps = 50;
    job.recipe.clip_norm = 1;
  });
  Recorder expected;
  run(job_on(w, "one", kUnsharded, long_run), 1, expected);
  for (const int64_t ranks : {2, 3, 4}) {
    for (const Shard shard : {kParameters, kHeadToo}) {
      SCOPED_TRACE(name_of(shard) + std::to_string(ranks));
      Recorder got;
      const TrainResult result =
          run(job_on(w, name_of(shard) + std::to_string(ranks), shard, long_run), ranks, got);
      EXPECT_EQ(result.arena_planned_bytes, result.arena_used_bytes);
      expect_near_losses(expected, got, 1e-5);
    }
  }
}

// Each micro-batch's gradients are exchanged and their shards summed. That changes the order of the
// sum, so that the result is near that of whole sums but not equal.
TEST(ParameterRanks, SumShardsOverMicroBatches) {
  const Workspace w;
  make_dataset(w, true, 100, 20);
  const auto change = mlp([](TrainJob& job) {
    job.recipe.steps = 50;
    job.recipe.accumulate_steps = 3;
    job.recipe.clip_norm = 0.3;
    job.recipe.ema_decay = 0.9;
  });
  Recorder expected;
  run(job_on(w, "one", kUnsharded, change), 1, expected);
  for (const int64_t ranks : {2, 4}) {
    for (const Shard shard : {kParameters, kHeadToo}) {
      const std::string name = name_of(shard) + std::to_string(ranks);
      SCOPED_TRACE(name);
      Recorder got, again;
      const TrainJob once = job_on(w, name, shard, change),
                     twice = job_on(w, name + "twice", shard, change);
      const TrainResult result = run(once, ranks, got);
      EXPECT_EQ(result.arena_planned_bytes, result.arena_used_bytes);
      expect_near_losses(expected, got, 1e-5);
      run(twice, ranks, again);
      EXPECT_TRUE(weights_of(once) == weights_of(twice));
    }
    Recorder whole;
    run(job_on(w, "whole" + std::to_string(ranks), kUnsharded, change), ranks, whole);
    Recorder sharded;
    run(job_on(w, "short" + std::to_string(ranks), kParameters, change), ranks, sharded);
    EXPECT_LT(sharded.plan.memory.gradient_bytes, whole.plan.memory.gradient_bytes);
    for (const PlannedExchange& exchange : sharded.plan.exchanges) {
      EXPECT_TRUE(exchange.kind == "all_reduce" || exchange.count % 3 == 0) << exchange.kind;
    }
  }
}

TEST(ParameterRanks, ResumeAsIfNeverStopped) {
  const Workspace w;
  make_dataset(w, true, 100);
  const auto change = mlp([](TrainJob& job) {
    job.recipe.clip_norm = 0.5;
    job.recipe.ema_decay = 0.9;
    job.recipe.checkpoint_every_steps = 7;
  });
  for (const Shard shard : {kParameters, kHeadToo}) {
    SCOPED_TRACE(name_of(shard));
    const auto job_of = [&](const std::string& run) {
      return job_on(w, run + name_of(shard), shard, change);
    };
    expect_to_resume(job_of, 4, 7);
  }
}

// A checkpoint has whole tensors, so the sharding of the run that wrote it does not matter.
TEST(ParameterRanks, CheckpointsOfEveryShardingPlanResumeInEveryOther) {
  const Workspace w;
  make_dataset(w, true, 100);
  const auto change = mlp([](TrainJob& job) {
    job.recipe.steps = 6;
    job.recipe.checkpoint_every_steps = 3;
    job.recipe.evaluate_every_steps = 3;
    job.recipe.ema_decay = 0.9;
    job.recipe.clip_norm = 1;
  });
  Recorder expected;
  run(job_on(w, "one", kUnsharded, change), 1, expected);
  const std::vector<RankLayout> layouts = {
      {1, kUnsharded},  {3, kUnsharded},  {4, Shard::kOptimizer}, {2, Shard::kHead},
      {2, kParameters}, {4, kParameters}, {4, kHeadToo}};
  const auto name = [](const RankLayout& l) { return name_of(l.shard) + std::to_string(l.ranks); };
  for (const RankLayout& from : layouts) {
    const TrainJob first = job_on(w, name(from), kUnsharded, change);
    Recorder begun;
    go_on(first, from, 3, begun);
    for (const RankLayout& to : layouts) {
      SCOPED_TRACE(name(from) + " to " + name(to));
      const TrainJob job = job_on(w, name(from) + name(to), kUnsharded, change);
      std::filesystem::copy(first.checkpoints, job.checkpoints,
                            std::filesystem::copy_options::recursive);
      Recorder got;
      go_on(job, to, 0, got);
      EXPECT_EQ(got.plan.first_step, 3);
      for (const char* key : {"train/loss", "val/loss"}) {
        ASSERT_FALSE(got.series[key].empty());
        for (const auto& [step, loss] : got.series[key]) {
          EXPECT_NEAR(loss, expected.series[key].at(step), 1e-5) << key << " of step " << step;
        }
      }
    }
  }
}
// As long as the number of ranks is the same, the bits do not depend on how each part of the run
// was sharded.
TEST(ParameterRanks, AlternateWithWholeParametersToTheSameBits) {
  const Workspace w;
  make_dataset(w, true, 100);
  const auto change = mlp([](TrainJob& job) { job.recipe.checkpoint_every_steps = 6; });
  const TrainJob never = job_on(w, "never", kUnsharded, change);
  Recorder of_never;
  run(never, 4, of_never);
  const TrainJob often = job_on(w, "often", kUnsharded, change);
  Recorder legs[4];
  go_on(often, {4, kParameters}, 6, legs[0]);
  go_on(often, {4, kUnsharded}, 12, legs[1]);
  go_on(often, {4, Shard::kOptimizer}, 18, legs[2]);
  go_on(often, {4, kParameters}, 0, legs[3]);
  EXPECT_TRUE(weights_of(often) == weights_of(never));
}

constexpr int64_t kWidth = 1024;  // a layer's weights are 4 MiB: a group and a bucket
Change deep(int64_t layers, int64_t width = kWidth) {
  return [=](TrainJob& job) {
    job.model = {};
    job.model.preset = "mlp";
    job.model.parameters.set("hidden", std::vector<int64_t>(static_cast<size_t>(layers), width));
    job.recipe.steps = 3;
  };
}
/// Returns a deep model without two layers that could form a pair (src/parallel/split_mlp.h).
Change without_pairs(int64_t layers) {
  return [=](TrainJob& job) {
    job.model = {};
    job.model.layers = {{"", "Flatten", {}, {}}};
    for (int64_t i = 0; i < layers; ++i) {
      job.model.layers.push_back({"", "Gemm", {}, {{"units", kWidth}}});
      job.model.layers.push_back({"", "LayerNormalization", {}, {}});
    }
    job.model.layers.push_back({"", "Gemm", {}, {}});
    job.recipe.steps = 3;
  };
}
constexpr int64_t kWeight = 4 * kWidth * kWidth;
int64_t transient_bytes(const MemoryBreakdown& memory) {
  return memory.activation_bytes + memory.gradient_bytes + memory.input_bytes;
}

TEST(ParameterRanks, NeedMemoryForTheirPartAndTheLayersInUse) {
  const Workspace w;
  make_dataset(w, true, 100);
  const DatasetSchema schema = read_schema(w / "dataset").value();
  const auto plan = [&](int64_t layers, int64_t ranks, Shard shard) {
    const TrainJob job = job_on(w, "plan", shard, deep(layers));
    return plan_run(job.model, job.recipe, schema, ranks).value();
  };
  for (const int64_t ranks : {2, 4}) {
    SCOPED_TRACE(ranks);
    const MemoryBreakdown whole = plan(12, ranks, kUnsharded).memory;
    const RunPlan of_parts = plan(12, ranks, kParameters);
    const MemoryBreakdown& part = of_parts.memory;
    int64_t expected = 0;
    const auto add = [&](int64_t elements) {
      expected += round_up(4 * kernels::shard_elements(elements, ranks), kHostAlignment);
    };
    add(64 * kWidth);
    for (int i = 0; i < 11; ++i) add(kWidth * kWidth);
    for (int i = 0; i < 12; ++i) add(kWidth);
    add(3 * kWidth);
    add(3);
    EXPECT_EQ(part.parameter_bytes, expected);
    EXPECT_EQ(part.optimizer_bytes, 2 * expected);
    EXPECT_EQ(of_parts.parameter_saved_bytes, whole.parameter_bytes - expected);
    EXPECT_EQ(of_parts.shard_saved_bytes, whole.optimizer_bytes - 2 * expected);
    EXPECT_NEAR(static_cast<double>(expected),
                static_cast<double>(whole.parameter_bytes) / static_cast<double>(ranks),
                0.01 * static_cast<double>(whole.parameter_bytes));
    // The limits are two groups of gathered weights, plus the gradients that are being computed,
    // exchanged, or waiting for the next bucket; and the shards of these.
    constexpr int64_t kRest = int64_t{1} << 20;  // activations, biases, the first and last layer
    EXPECT_LE(part.gradient_bytes, 3 * kWeight + kRest);
    EXPECT_LE(transient_bytes(part), 5 * kWeight + 2 * kWeight / ranks + kRest);
    // The number of layers does not matter.
    const MemoryBreakdown deeper = plan(24, ranks, kParameters).memory;
    EXPECT_LT(transient_bytes(deeper), transient_bytes(part) + kWeight / 2);
    // The plan needs no measurement, and the run uses exactly the planned memory.
    Recorder r;
    const TrainResult result =
        run(job_on(w, "run" + std::to_string(ranks), kParameters, deep(4)), ranks, r);
    EXPECT_EQ(result.arena_planned_bytes, result.arena_used_bytes);
    EXPECT_EQ(r.plan.memory.total(), result.arena_planned_bytes);
  }
}

// Clipping must wait for all gradients; only their shards are kept until then.
TEST(ParameterRanks, ClipShardsAfterWholeGradientsAreFreed) {
  const Workspace w;
  make_dataset(w, true, 100);
  const DatasetSchema schema = read_schema(w / "dataset").value();
  const auto gradient_bytes = [&](Shard shard) {
    TrainJob job = job_on(w, "clipped", shard, deep(24));
    job.recipe.clip_norm = 1;
    return plan_run(job.model, job.recipe, schema, 4).value().memory.gradient_bytes;
  };
  EXPECT_GT(gradient_bytes(kUnsharded), 23 * kWeight);
  EXPECT_LT(gradient_bytes(kParameters), 23 * kWeight / 4 + 3 * kWeight);
}

TEST(ParameterRanks, TrainAModelThatFitsInNoOtherWay) {
  const Workspace w;
  make_dataset(w, true, 100);
  Recorder unbounded, r;
  const auto model = without_pairs(8);
  run(job_on(w, "unbounded", kUnsharded, model), 4, unbounded);
  const TrainJob sharded = job_on(w, "sharded", kParameters, model);
  const DatasetSchema schema = read_schema(w / "dataset").value();
  // The weights do not fit, whether with their whole optimizer state or with a shard of it.
  const int64_t limit =
      plan_run(sharded.model, sharded.recipe, schema, 4).value().memory.total() + kWeight / 2;
  EXPECT_LT(limit, unbounded.plan.memory.parameter_bytes + unbounded.plan.memory.optimizer_bytes);
  const auto devices = [&] { return small_devices(4, limit); };
  for (const Shard shard :
       {kUnsharded, Shard::kOptimizer, Shard::kHead, Shard::kOptimizer | Shard::kHead}) {
    Recorder refused;
    EXPECT_THROW((void)train(job_on(w, "refused" + name_of(shard), shard, model), devices(),
                             local_files(), refused, {}),
                 std::bad_alloc)
        << name_of(shard);
  }
  const auto result = train(sharded, devices(), local_files(), r, {});
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(r.series["train/loss"], unbounded.series["train/loss"]);
}

TEST(ParameterRanks, AreTheLastChoice) {
  const Workspace w;
  make_dataset(w, true, 100);
  const DatasetSchema schema = read_schema(w / "dataset").value();
  const auto bytes = [&](const TrainJob& job) {
    const RunPlan plan = plan_run(job.model, job.recipe, schema, 4).value();
    return plan.memory.total() + plan.host_bytes;
  };
  const TrainJob job = job_on(w, "job", kUnsharded, without_pairs(8));
  const auto of = [&](Shard shard) { return bytes(job_on(w, "job", shard, without_pairs(8))); };
  ASSERT_LT(of(kParameters), std::min(of(Shard::kOptimizer), of(Shard::kHead)));
  const auto find = [&](const Recipe& recipe, int64_t limit) {
    return find_fit(job.model, recipe, schema, limit, {true, true, true}, 4).value_or(Fit{});
  };
  const Fit fit = find(job.recipe, of(kParameters));
  EXPECT_EQ(fit.shard, kParameters);
  EXPECT_EQ(fit.recompute, Recompute::kNone);
  EXPECT_GT(fit.plan.parameter_saved_bytes, 0);
  EXPECT_EQ(find(job.recipe, of(Shard::kOptimizer)).shard, Shard::kOptimizer)
      << "it is the smaller change";
  EXPECT_EQ(advise_fit(job.model, job.recipe, schema, of(kParameters), 4).shard, kParameters);
  // sgd without momentum has no state, but its weights and gradients can still be sharded.
  Recipe sgd = job.recipe;
  sgd.optimizer = default_optimizer("sgd");
  TrainJob sharded = job_on(w, "job", kParameters, without_pairs(8));
  sharded.recipe.optimizer = sgd.optimizer;
  EXPECT_EQ(find(sgd, bytes(sharded)).shard, kParameters);
  Recipe muon = job.recipe;
  muon.optimizer = default_optimizer("muon");
  EXPECT_FALSE(shards_parameters(find(muon, of(kParameters)).shard));
}

TEST(ParameterRanks, PlanTheirExchange) {
  const Workspace w;
  make_dataset(w, true, 100);
  const DatasetSchema schema = read_schema(w / "dataset").value();
  const auto exchanges = [&](const Change& change) {
    const TrainJob job = job_on(w, "job", kParameters, change);
    return plan_run(job.model, job.recipe, schema, 4).value().exchanges;
  };
  // Each weight is gathered for forward and again for backward, with exceptions: backward reads no
  // biases, and the last weight is still gathered when backward begins. The first weight is
  // gathered because its gradient's node names it, although nothing is computed from it.
  constexpr int64_t kBiases = 4 * 4 * kWidth, kFirst = 4 * 64 * kWidth,
                    kLast = 4 * (3 * kWidth + 3);
  const auto of = exchanges(deep(4));
  ASSERT_EQ(of.size(), 2u);
  EXPECT_EQ(of[0].kind, "all_gather");
  EXPECT_EQ(of[0].axis, "elements");
  EXPECT_EQ(of[0].count, 8);
  EXPECT_EQ(of[0].bytes, kFirst + 3 * kWeight + kBiases + kLast + 3 * kWeight + kFirst);
  EXPECT_EQ(of[0].sent_bytes, of[0].bytes * 3 / 4);
  EXPECT_EQ(of[1].kind, "reduce_scatter");
  EXPECT_EQ(of[1].bytes, kFirst + 3 * kWeight + kBiases + kLast);
  // Weights that products read in 16 bits are exchanged in 16 bits.
  const auto half = exchanges([](TrainJob& job) {
    deep(4)(job);
    job.recipe.precision = Precision::kBf16;
  });
  EXPECT_EQ(half[0].kind, "all_gather");
  EXPECT_LT(half[0].bytes, of[0].bytes * 6 / 10);
  EXPECT_EQ(half[1].bytes, of[1].bytes);
}

/// Returns the steps during which the gathered tensors of each group are in memory: from the
/// group's start to the last node that reads one of its tensors.
std::vector<std::pair<size_t, size_t>> gathered_steps(const Program& program) {
  std::vector<std::pair<size_t, size_t>> lives;
  std::map<TensorId, size_t> group_of;
  for (size_t step = 0; step < program.order.size(); ++step) {
    const Node& node = program.graph.node(program.order[step]);
    for (const TensorId id : node.inputs) {
      if (const auto group = group_of.find(id); group != group_of.end()) {
        lives[group->second].second = step;
      }
    }
    if (node.op == gather_shards_start_op()) lives.emplace_back(step, step);
    if (node.op == gather_shards_start_op() || node.op == gather_shards_done_op()) {
      const size_t group =
          node.op == gather_shards_start_op() ? lives.size() - 1 : group_of.at(node.inputs[0]);
      for (const TensorId id : node.outputs) group_of[id] = group;
    }
  }
  return lives;
}

// For any groups: at most two are in memory at the same time, the second while the first is used;
// and all ranks have the same memory layout.
TEST(ParameterRanks, GatherOneGroupAhead) {
  const Workspace w;
  make_dataset(w, true, 100);
  const DatasetSchema schema = read_schema(w / "dataset").value();
  for (const int64_t accumulate_steps : {1, 2}) {
    for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
      TrainJob job = job_on(w, "job", kParameters, deep(6, 2 * kWidth));
      job.recipe.accumulate_steps = accumulate_steps;
      job.recipe.precision = precision;
      job.recipe.clip_norm = 1;
      const RunShape shape = check_recipe(job.recipe, job.model, schema, 4).value();
      const RunPrograms first = compile_run(job.model, job.recipe, schema, shape, 0).value();
      const RunPrograms last = compile_run(job.model, job.recipe, schema, shape, 3).value();
      EXPECT_EQ(first.train.program.dump_memory(), last.train.program.dump_memory());
      EXPECT_EQ(first.evaluate->program.dump_memory(), last.evaluate->program.dump_memory());
      EXPECT_EQ(exchanges_of(first, accumulate_steps), exchanges_of(last, accumulate_steps));
      for (const Program* program : {&first.train.program, &first.evaluate->program}) {
        verify(*program);
        const auto lives = gathered_steps(*program);
        ASSERT_GE(lives.size(), 6u);
        size_t ahead = 0;
        for (size_t step = 0; step < program->order.size(); ++step) {
          const auto there = std::ranges::count_if(
              lives, [&](const auto& l) { return l.first <= step && step <= l.second; });
          EXPECT_LE(there, 2) << "step " << step;
          if (there == 2) ++ahead;
        }
        EXPECT_GT(ahead, lives.size()) << "nothing hides a gather";
      }
    }
  }
}

// A shard of few elements has the shape of the whole tensor; only its spread distinguishes them.
TEST(ParameterRanks, AShardIsNotAWholeTensor) {
  Graph graph;
  const TensorId p =
      graph.add_tensor({"p", {{3}, DType::kF32}, Role::kParameter, Layout::kRowMajor, kNoNode, {}});
  const auto shards = shard_parameters(graph, 4);
  ASSERT_EQ(shards.size(), 1u);
  const auto [whole, of] = *shards.begin();
  ASSERT_EQ(of, p);
  const TensorInfo& shard = graph.tensor(p);
  EXPECT_EQ(shard.name, "p");
  EXPECT_EQ(shard.type.shape, (Shape{3}));
  EXPECT_EQ(shard.whole_type().shape, (Shape{3}));
  const auto refused = graph.add_node("y", *relu_op(), {}, {p}, {"y"});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().reason, "SHARDING_UNSUPPORTED");
  EXPECT_NE(refused.error().message.find("p (elements)"), std::string::npos);
  const Attributes gather{{"bucket", int64_t{0}},
                          {kRank, int64_t{0}},
                          {kRanks, int64_t{4}},
                          {"shapes", flat_shapes({Shape{3}})}};
  EXPECT_FALSE(graph.add_node("g", *gather_shards_start_op(), gather, {whole}, {"g"}).ok())
      << "a whole tensor is no shard";
  Attributes other = gather;
  other.set("shapes", flat_shapes({Shape{64}}));
  EXPECT_FALSE(graph.add_node("g", *gather_shards_start_op(), other, {p}, {"g"}).ok());
  EXPECT_TRUE(graph.add_node("g", *gather_shards_start_op(), gather, {p}, {"g"}).ok());
}

TEST(ParameterRanks, RefusalsNameTheFieldAndWhatIsAccepted) {
  const Workspace w;
  make_dataset(w, true, 100);
  TrainJob job = job_on(w, "a", kParameters);
  const DatasetSchema schema = read_schema(job.dataset).value();
  const auto refusal = [&](int64_t ranks) {
    const auto plan = plan_run(job.model, job.recipe, schema, ranks);
    return plan.ok() ? "" : plan.error().message;
  };
  EXPECT_EQ(refusal(2), "");
  EXPECT_EQ(refusal(1),
            "resources.shard: parameters needs resources.gpus or resources.nodes above 1, expected "
            "one of these or shard: none");
  for (const char* type : {"muon", "adafactor"}) {
    job.recipe.optimizer = default_optimizer(type);
    EXPECT_EQ(refusal(2),
              "resources.shard: parameters needs an optimizer that updates each element by itself, "
              "and " +
                  std::string(type) +
                  " updates tensors as a whole, expected shard: none, or as recipe.optimizer one "
                  "of adam, adamw, lion, rmsprop and sgd");
  }
  EXPECT_EQ(canonical(Shard::kOptimizer | kParameters), kParameters);
  EXPECT_EQ(canonical(Shard::kOptimizer | kHeadToo), kHeadToo);
  EXPECT_EQ(canonical(Shard::kOptimizer | Shard::kHead), Shard::kOptimizer | Shard::kHead);
  EXPECT_EQ(name_of(kHeadToo), "[head, parameters]");
}

}  // namespace
}  // namespace trainyard
