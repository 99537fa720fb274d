// Tests of a head that shares an embedding's table, as in GPT-2, split by class over several
// devices, which are host backends here; each token is looked up on the rank that has its row.
// Expects the losses of one device, in the planned memory, with checkpoints from and to any
// sharding.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>

#include "kernels/alignment.h"
#include "src/job/recipe.h"
#include "src/job/run_plan.h"
#include "src/job/train_job.h"
#include "src/ops/gather.h"
#include "src/planning/job_plan.h"
#include "src/planning/programs.h"
#include "src/planning/sharding_plans.h"
#include "src/train/trainer.h"
#include "tests/engine/rank_support.h"
#include "tests/engine/split_support.h"
#include "tests/engine/train_support.h"

namespace trainyard {
namespace {

using testing::Change;
using testing::distance;
using testing::expect_the_curve;
using testing::expect_the_curve_over;
using testing::expect_the_same_bits_twice;
using testing::make_text;
using testing::optimizer;
using testing::RankLayout;
using testing::Recorder;
using testing::run;
using testing::small_devices;
using testing::Workspace;

constexpr Shard kWhole = Shard::kNone, kHead = Shard::kHead,
                kState = Shard::kOptimizer | Shard::kHead,
                kSharded = Shard::kHead | Shard::kParameters,
                kEvery = Shard::kHead | Shard::kMlp | Shard::kParameters;
// the batch is divisible by 2, 3 and 4 ranks
constexpr int64_t kWidth = 24, kContext = 6, kBatch = 24;

/// The vocabulary has 14 words, so that with 3 and with 4 ranks the last one has fewer than the
/// others.
TrainJob job_on(const Workspace& w, const std::string& name, Shard shard,
                const Change& change = nullptr) {
  TrainJob job = testing::plain_job(w, name);
  job.model = {};
  job.model.preset = "gpt2";
  job.model.parameters = {{"size", std::string("nano")},
                          {"n_layer", int64_t{1}},
                          {"n_head", int64_t{2}},
                          {"n_embd", kWidth}};
  job.recipe.context_length = kContext;
  job.recipe.steps = 50;
  job.recipe.batch_size = kBatch;
  job.recipe.optimizer = default_optimizer("adamw");
  job.recipe.optimizer.learning_rate = 0.002;
  job.recipe.optimizer.weight_decay = 0.01;
  if (change) change(job);
  job.recipe.shard = shard;
  return job;
}

/// Returns a model with two embeddings, one of which shares its table with the head, and a bias;
/// `more` layers are between them and the head.
Change layers(std::vector<LayerSpec> more = {}) {
  return [=](TrainJob& job) {
    job.model = {};
    job.model.layers = {
        {"words", "Embedding", {}, {{"embedding_dim", int64_t{12}}}},
        {"others", "Embedding", {"input"}, {{"embedding_dim", int64_t{12}}}},
        {"sum", "Add", {"words", "others"}, {}},
        {"", "Gelu", {}, {}},
    };
    job.model.layers.insert(job.model.layers.end(), more.begin(), more.end());
    job.model.layers.push_back({"head", "Linear", {}, {{"tied_to", std::string("words")}}});
  };
}

/// Runs the job on one device and with a split head on each number of ranks, and expects the same
/// loss curve.
void expect_the_curve_of_one_device(const Change& change, double bound = 1e-5,
                                    const std::vector<Shard>& shards = {kHead},
                                    const std::vector<int64_t>& all_ranks = {2, 3, 4}) {
  const Workspace w;
  make_text(w);
  Recorder expected;
  run(job_on(w, "one", kWhole, change), 1, expected);
  ASSERT_EQ(expected.series["train/loss"].size(), 50u);
  EXPECT_LT(expected.series["train/loss"].rbegin()->second,
            expected.series["train/loss"].begin()->second);
  const auto job_of = [&](const std::string& name, Shard shard) {
    return job_on(w, name, shard, change);
  };
  testing::expect_the_curve_on(
      all_ranks, shards, expected, bound, job_of,
      [&](const std::string& name, const Recorder& got) {
        EXPECT_GT(got.plan.head_saved_bytes, 0);
        double worst = 0;
        for (const auto& [step, loss] : expected.series["train/loss"]) {
          worst = std::max(worst, std::fabs(got.series.at("train/loss").at(step) - loss));
        }
        std::printf("%s: losses within %.1e of one device's\n", name.c_str(), worst);
      });
}

TEST(TiedHead, FollowsTheCurveOfOneDevice) {
  expect_the_curve_of_one_device(nullptr, 1e-5, {kHead, kState, kSharded, kEvery});
}
TEST(TiedHead, FollowsTheCurveWithASeparateEmbeddingAndABias) {
  expect_the_curve_of_one_device(layers());
}
TEST(TiedHead, FollowsTheCurveWithEverySupportedOptimizer) {
  expect_the_curve_of_one_device(optimizer("sgd", 0.02, 0.9), 1e-5, {kHead, kState}, {3});
  expect_the_curve_of_one_device(optimizer("sgd", 0.05), 1e-5, {kHead}, {3});
  for (const char* type : {"adam", "rmsprop"}) {
    SCOPED_TRACE(type);
    expect_the_curve_of_one_device(optimizer(type, 0.001), 1e-5, {kHead}, {3});
  }
  // Muon leaves the table to AdamW.
  expect_the_curve_of_one_device(optimizer("muon", 0.002, 0.9), 1e-4, {kHead}, {3});
}
TEST(TiedHead, FollowsTheCurveWithEveryKindOfTarget) {
  expect_the_curve_of_one_device(
      [](TrainJob& job) {
        job.model.loss = {"SoftmaxCrossEntropyLoss", {{"label_smoothing", 0.2}}};
      },
      1e-5, {kHead}, {3});
  expect_the_curve_of_one_device(
      [](TrainJob& job) {
        job.model.loss = {"SoftmaxCrossEntropyLoss",
                          {{"label_smoothing", 0.1}, {"ignore_index", int64_t{2}}}};
      },
      1e-5, {kHead}, {4});
}
TEST(TiedHead, FollowsTheCurveWithClippedGradients) {
  expect_the_curve_of_one_device(
      [](TrainJob& job) {
        job.recipe.clip_norm = 0.3;
        job.recipe.metrics = {"gradient_norm"};
      },
      1e-5, {kHead, kState, kSharded}, {3});
  expect_the_curve_of_one_device([](TrainJob& job) { job.recipe.clip_value = 0.01; }, 1e-5, {kHead},
                                 {2});
}
TEST(TiedHead, FollowsTheCurveWithMicroBatchesAndAverages) {
  expect_the_curve_of_one_device(
      [](TrainJob& job) {
        job.recipe.accumulate_steps = 2;
        job.recipe.clip_norm = 0.3;
        job.recipe.ema_decay = 0.9;
        job.recipe.keep_best.metric = "val/loss";
      },
      1e-5, {kHead, kEvery}, {2, 3});
}
TEST(TiedHead, FollowsTheCurveWithDropoutAndRecompute) {
  for (const Recompute recompute : {Recompute::kNone, Recompute::kBlocks, Recompute::kFull}) {
    expect_the_curve_of_one_device(
        [&](TrainJob& job) {
          job.model.parameters.set("dropout", 0.2);
          job.recipe.recompute = recompute;
        },
        1e-5, {kHead}, {3});
  }
}
// A frozen table has no gradient, but the layers after it still have theirs.
TEST(TiedHead, FollowsTheCurveWithFrozenLayersAndLora) {
  for (const char* frozen : {"wte.*", "h0*"}) {
    SCOPED_TRACE(frozen);
    expect_the_curve_of_one_device(
        [&](TrainJob& job) { job.recipe.parameter_groups = {{.match = frozen, .freeze = true}}; },
        1e-5, {kHead}, {3});
  }
  expect_the_curve_of_one_device(
      [](TrainJob& job) {
        job.recipe.lora = {.rank = 2, .alpha = 4, .dropout = 0, .targets = {"h0*"}};
      },
      1e-5, {kHead}, {3});
}
// The loss curve must equal that of one device, within the precision of 16 bits.
TEST(TiedHead, FollowsTheCurveIn16Bits) {
  for (const Precision precision : {Precision::kBf16, Precision::kFp16}) {
    SCOPED_TRACE(std::string(name_of(precision)));
    expect_the_curve_of_one_device([&](TrainJob& job) { job.recipe.precision = precision; },
                                   precision == Precision::kFp16 ? 5e-3 : 3e-2, {kHead}, {2, 3});
  }
}

TEST(TiedHead, GivesTheSameBitsTwiceAndAfterAResume) {
  const Workspace w;
  make_text(w);
  for (const int64_t ranks : {2, 3, 4}) {
    for (const Shard shard : {kHead, kEvery}) {
      const std::string name = name_of(shard) + std::to_string(ranks);
      SCOPED_TRACE(name);
      const auto job_of = [&](const std::string& run) {
        return job_on(w, name + run, shard, [](TrainJob& job) {
          job.recipe.clip_norm = 0.5;
          job.recipe.checkpoint_every_steps = 7;
        });
      };
      expect_the_same_bits_twice(job_of, ranks, 7);
    }
  }
}

// A checkpoint has the whole table, so the sharding of the run that wrote it does not matter.
TEST(TiedHead, CheckpointsResumeInAnyShardingPlan) {
  const Workspace w;
  make_text(w);
  const auto change = [](TrainJob& job) {
    job.recipe.checkpoint_every_steps = 6;
    job.recipe.ema_decay = 0.9;
    job.recipe.clip_norm = 1;
  };
  const TrainJob one = job_on(w, "one", kWhole, change);
  Recorder expected;
  run(one, 1, expected);
  const std::vector<std::vector<RankLayout>> ways = {
      {{4, kHead}, {1, kWhole}, {3, kHead}, {2, kSharded}, {4, kState}, {2, kWhole}, {3, kEvery}},
      {{1, kWhole}, {3, kEvery}, {4, kWhole}, {2, kHead}, {4, Shard::kParameters}, {3, kState}}};
  for (size_t i = 0; i < ways.size(); ++i) {
    const TrainJob job = job_on(w, "way" + std::to_string(i), kWhole, change);
    expect_the_curve_over(ways[i], 6, expected, job);
  }
}

// The job starts from given weights, and its result is a whole model again. (AdamW would turn the
// rounding errors that are the gradient of a key's bias into full steps.)
TEST(TiedHead, StartsFromGivenWeightsAndExportsWholeOnes) {
  const Workspace w;
  make_text(w);
  const TrainJob source = job_on(w, "source", kHead);
  Recorder ignored;
  run(source, 3, ignored);
  const auto tune = [&](const std::string& name, Shard shard, const TrainJob& from) {
    return job_on(w, name, shard, [&](TrainJob& job) {
      optimizer("sgd", 0.02, 0.9)(job);
      job.recipe.steps = 10;
      job.recipe.initial_weights = {.source = "source"};
      job.initial_weights = from.model_output / "model.safetensors";
    });
  };
  const TrainJob one = tune("one", kWhole, source), split = tune("split", kHead, source);
  Recorder of_one, of_split;
  run(one, 1, of_one);
  run(split, 4, of_split);
  expect_the_curve(of_one, of_split, 1e-5);
  EXPECT_LT(distance(split, one), 1e-5);
  Recorder further_one, further_split;
  run(tune("further one", kHead, one), 2, further_one);
  run(tune("further split", kWhole, split), 1, further_split);
  expect_the_curve(further_one, further_split, 1e-5);
}

constexpr int64_t kBytes = 256;  // the vocabulary of a byte tokenizer

/// Returns a model most of whose memory is the table's, with only an activation between the
/// embedding and the head; three steps.
Change wide(int64_t width) {
  return [=](TrainJob& job) {
    job.model = {};
    job.model.layers = {{"words", "Embedding", {}, {{"embedding_dim", width}}},
                        {"", "Gelu", {}, {}},
                        {"head", "Linear", {}, {{"tied_to", std::string("words")}}}};
    job.recipe.steps = 3;
    job.recipe.batch_size = 12;
    job.recipe.context_length = 2;
  };
}

TEST(TiedHead, RanksStoreOnlyTheirPartOfTheTable) {
  const Workspace w;
  make_text(w, 900, "byte");
  Recorder whole;
  const auto change = wide(kWidth);
  run(job_on(w, "whole", kWhole, change), 4, whole);
  EXPECT_EQ(whole.plan.head_saved_bytes, 0);
  const auto padded = [](int64_t elements) { return round_up(4 * elements, kHostAlignment); };
  for (const int64_t ranks : {2, 3, 4}) {
    SCOPED_TRACE(ranks);
    Recorder split;
    const TrainResult result = run(job_on(w, std::to_string(ranks), kHead, change), ranks, split);
    EXPECT_EQ(result.arena_planned_bytes, result.arena_used_bytes);
    EXPECT_EQ(split.plan.memory.total(), result.arena_planned_bytes);
    const int64_t rows = (kBytes + ranks - 1) / ranks;
    const int64_t head = padded(rows * kWidth) + padded(rows);
    const MemoryBreakdown &part = split.plan.memory, &all = whole.plan.memory;
    EXPECT_EQ(part.parameter_bytes, head);
    EXPECT_EQ(part.optimizer_bytes, 2 * head);
    EXPECT_EQ(split.plan.head_saved_bytes, all.parameter_bytes - part.parameter_bytes);
    EXPECT_EQ(split.plan.shard_saved_bytes, all.optimizer_bytes - part.optimizer_bytes);
    EXPECT_EQ(split.plan.checkpoints.size_bytes, whole.plan.checkpoints.size_bytes);
  }
}

/// Returns the schema of a text with `words` words, for plans only: nothing is trained.
DatasetSchema vocabulary(int64_t words) {
  DatasetSchema schema;
  schema.kind = DatasetSchema::Kind::kText;
  schema.text.tokenizer = TokenizerKind::kWord;
  for (int64_t i = 1; i < words; ++i) schema.text.pieces.push_back(std::to_string(i));
  schema.target.kind = TargetSchema::Kind::kNextToken;
  schema.train_rows = 100000;
  return schema;
}

TEST(TiedHead, PlansTheExchangeAndTheSavingsOfRanks) {
  constexpr int64_t kWords = 3001, kPositions = kBatch * kContext;
  const Workspace w;
  TrainJob job = job_on(w, "job", kWhole);
  const DatasetSchema schema = vocabulary(kWords);
  const RunPlan whole = plan_run(job.model, job.recipe, schema, 4).value();
  job.recipe.shard = kHead;
  for (const int64_t accumulate_steps : {1, 2}) {
    SCOPED_TRACE(accumulate_steps);
    job.recipe.accumulate_steps = accumulate_steps;
    const RunPlan plan = plan_run(job.model, job.recipe, schema, 4).value();
    ASSERT_EQ(plan.exchanges.size(), 3u);
    // Tokens; the head's inputs with the labels; four numbers of each row from each rank; and, in
    // the backward pass, the gradients of the tokens' vectors.
    const int64_t gathered = 4 * kPositions * (1 + (kWidth + 1) + 4 * 4 + kWidth);
    EXPECT_EQ(plan.exchanges[0].kind, "gather_rows");
    EXPECT_EQ(plan.exchanges[0].count, 4 * accumulate_steps);
    EXPECT_EQ(plan.exchanges[0].bytes, gathered);
    EXPECT_EQ(plan.exchanges[0].sent_bytes, gathered * 3 / 4);
    // The tokens' vectors, and the gradient of the head's inputs.
    const int64_t scattered = 4 * kPositions * 2 * kWidth;
    EXPECT_EQ(plan.exchanges[1].kind, "scatter_rows");
    EXPECT_EQ(plan.exchanges[1].count, 2 * accumulate_steps);
    EXPECT_EQ(plan.exchanges[1].bytes, scattered);
    EXPECT_EQ(plan.exchanges[1].sent_bytes, scattered * 3 / 4);
    EXPECT_EQ(plan.exchanges[2].kind, "all_reduce");
    EXPECT_EQ(plan.exchanges[2].bytes, 4 * (whole.parameter_count - kWords * kWidth))
        << "nothing of the table";
    EXPECT_LT(plan.memory.total(), whole.memory.total() * 5 / 9);
  }
}

TEST(TiedHead, TrainsAModelWhoseTableFitsNoDevice) {
  constexpr int64_t kFeatures = 96;
  const Workspace w;
  make_text(w, 900, "byte");
  const auto change = wide(kFeatures);
  Recorder unbounded, refused, got;
  run(job_on(w, "unbounded", kWhole, change), 1, unbounded);
  constexpr int64_t kLimit = 4 * kBytes * kFeatures * 3;  // the table and its AdamW state
  EXPECT_GT(unbounded.plan.memory.parameter_bytes + unbounded.plan.memory.optimizer_bytes, kLimit);
  EXPECT_THROW((void)train(job_on(w, "whole", kWhole, change), small_devices(4, kLimit),
                           local_files(), refused, {}),
               std::bad_alloc);
  const auto result =
      train(job_on(w, "split", kHead, change), small_devices(4, kLimit), local_files(), got, {});
  ASSERT_TRUE(result.ok()) << result.error().message;
  expect_the_curve(unbounded, got, 1e-5);
}

// All ranks run the same program with the same memory layout, and every exchange has its own
// number.
TEST(TiedHead, RanksDifferOnlyByAttributes) {
  const Workspace w;
  make_text(w);
  TrainJob job = job_on(w, "job", kEvery);
  job.recipe.clip_norm = 1;
  const DatasetSchema schema = read_schema(job.dataset).value();
  const RunShape shape = check_recipe(job.recipe, job.model, schema, 4).value();
  const RunPrograms first = compile_run(job.model, job.recipe, schema, shape, 0).value();
  const RunPrograms last = compile_run(job.model, job.recipe, schema, shape, 3).value();
  EXPECT_EQ(first.train.program.dump_memory(), last.train.program.dump_memory());
  EXPECT_EQ(first.evaluate->program.dump_memory(), last.evaluate->program.dump_memory());
  EXPECT_EQ(exchanges_of(first), exchanges_of(last));
  std::set<int64_t> numbers;
  std::set<std::string> rows;
  for (const Node& node : first.train.program.graph.nodes()) {
    if (!starts_exchange(node.op->type())) continue;
    EXPECT_TRUE(numbers.insert(node.attributes.get_int("bucket", -1)).second) << node.name;
    if (exchanges_rows(node.op->type())) rows.insert(node.name);
  }
  for (const char* name : {"wte/gather", "wte/scatter", "wte/scatter/grad"}) {
    EXPECT_TRUE(rows.contains(name)) << name;
  }
}

// After all passes, no node reads a shard as a whole tensor or the reverse.
TEST(TiedHead, ProgramsKeepTheOriginOfTensors) {
  const Workspace w;
  make_text(w);
  for (const Shard shard : {kHead, kState, kEvery}) {
    for (const Precision precision : {Precision::kFp32, Precision::kBf16, Precision::kFp16}) {
      for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
        SCOPED_TRACE(name_of(shard) + " " + std::string(name_of(precision)));
        TrainJob job = job_on(w, "job", shard);
        job.recipe.precision = precision;
        job.recipe.recompute = recompute;
        job.recipe.accumulate_steps = recompute == Recompute::kNone ? 1 : 2;
        job.recipe.clip_norm = 1;
        const DatasetSchema schema = read_schema(job.dataset).value();
        const RunShape shape = check_recipe(job.recipe, job.model, schema, 3).value();
        const RunPrograms programs = compile_run(job.model, job.recipe, schema, shape, 2).value();
        programs.train.program.graph.verify();
        programs.evaluate->program.graph.verify();
        if (programs.update.has_value()) programs.update->program.graph.verify();
        const Graph& graph = programs.train.program.graph;
        const TensorInfo& table = graph.tensor(graph.find_tensor("wte.weight").value());
        EXPECT_EQ(table.spread, Spread::kClasses);
        EXPECT_EQ(table.type.shape, Shape({5, kWidth}));
      }
    }
  }
}

// Every sharding set is also tried for GPT-2, and a model that is too large for one device fits
// with a split head.
TEST(TiedHead, ShardingPlansOfGpt2HaveASplitHead) {
  const Workspace w;
  TrainJob job = job_on(w, "job", kWhole);
  const DatasetSchema schema = vocabulary(3001);
  ShardingQuery query;
  query.free = {true, true, true};
  query.ranks = 4;
  Recipe split = job.recipe;
  split.shard = kHead;
  query.limit_bytes = device_bytes({}, plan_run(job.model, split, schema, 4).value());
  const ShardingPlans shardings =
      enumerate_sharding_plans(job.model, job.recipe, schema, query).value();
  const auto row = std::ranges::find_if(shardings.rows, [](const ShardingRow& r) {
    return r.sharding.shard == kHead && r.sharding.recompute == Recompute::kNone &&
           r.sharding.accumulate_steps == 1;
  });
  ASSERT_NE(row, shardings.rows.end());
  EXPECT_EQ(row->bytes, query.limit_bytes);
  EXPECT_NE(row->verdict, ShardingVerdict::kRefused) << row->message;
  EXPECT_NE(row->verdict, ShardingVerdict::kDoesNotFit) << row->message;
  EXPECT_GT(row->sent_bytes, 0);
}

// A graph refuses a lookup that would read a part of the table as the whole table, or partial sums
// as vectors.
TEST(TiedHead, GraphsRefuseALookupThatIsNotPlanned) {
  Graph graph;
  const auto add = [&](const char* name, TensorType type, Spread spread) {
    TensorInfo info{name, std::move(type), Role::kInput, Layout::kRowMajor, kNoNode, {}};
    info.spread = spread;
    return graph.add_tensor(std::move(info));
  };
  const TensorId part = add("part", {{5, 3}, DType::kF32}, Spread::kClasses);
  const TensorId whole = add("whole", {{10, 3}, DType::kF32}, Spread::kOwn);
  const TensorId own = add("own", {{4}, DType::kI32}, Spread::kOwn);
  const TensorId all = add("all", {{8}, DType::kI32}, Spread::kGathered);
  const TensorId dy = add("dy", {{4, 3}, DType::kF32}, Spread::kOwn);
  const TensorId all_dy = add("all_dy", {{8, 3}, DType::kF32}, Spread::kGathered);
  const Attributes ranks{{"rank", int64_t{1}}, {"ranks", int64_t{2}}};
  Attributes table = ranks;
  table.set("shape", std::vector<int64_t>{5, 3});
  const auto refused = [&](const char* name, const Op& op, const Attributes& attributes,
                           std::vector<TensorId> inputs) {
    const auto node = graph.add_node(name, op, attributes, std::move(inputs), {name});
    EXPECT_FALSE(node.ok()) << name;
    return node.ok() ? "" : node.error().reason;
  };
  EXPECT_EQ(refused("own tokens in a part", *split_gather_op(), ranks, {part, own}),
            "SHARDING_UNSUPPORTED");
  EXPECT_EQ(refused("all tokens in the whole", *split_gather_op(), ranks, {whole, all}),
            "SHARDING_UNSUPPORTED");
  EXPECT_EQ(refused("a part for the whole", *gather_op(), {}, {part, own}), "SHARDING_UNSUPPORTED");
  EXPECT_EQ(refused("own gradients", *split_gather_grad_op(), table, {own, dy}),
            "SHARDING_UNSUPPORTED");
  EXPECT_EQ(refused("no rank", *split_gather_op(), {{"ranks", int64_t{2}}}, {part, all}),
            "ATTRIBUTE_OUT_OF_RANGE");
  EXPECT_EQ(refused("another rank", *split_gather_op(),
                    {{"rank", int64_t{2}}, {"ranks", int64_t{2}}}, {part, all}),
            "ATTRIBUTE_OUT_OF_RANGE");
  const auto y = graph.add_node("y", *split_gather_op(), ranks, {part, all}, {"y"});
  ASSERT_TRUE(y.ok()) << y.error().message;
  const TensorId vectors = graph.node(*y).outputs[0];
  EXPECT_EQ(graph.tensor(vectors).spread, Spread::kSummand);
  EXPECT_EQ(refused("gelu of a summand", get_op("Gelu"), {}, {vectors}), "SHARDING_UNSUPPORTED");
  const auto grad =
      graph.add_node("grad", *split_gather_grad_op(), table, {all, all_dy}, {"dtable"});
  ASSERT_TRUE(grad.ok()) << grad.error().message;
  EXPECT_EQ(graph.tensor(graph.node(*grad).outputs[0]).spread, Spread::kClasses);
  graph.verify();
}

TEST(TiedHead, RefusesATableWithOtherReaders) {
  const Workspace w;
  make_text(w);
  const auto refusal = [&](const Change& change) {
    const TrainJob job = job_on(w, "a", kHead, change);
    const auto plan = plan_run(job.model, job.recipe, read_schema(job.dataset).value(), 2);
    return plan.ok() ? "" : plan.error().message;
  };
  const std::string otherwise = ", expected shard: optimizer or none",
                    why =
                        "resources.shard: head needs weights of its own, or a table that one "
                        "embedding reads, and ";
  EXPECT_EQ(refusal(layers()), "");
  EXPECT_EQ(refusal(layers({{"middle", "Linear", {}, {{"tied_to", std::string("words")}}},
                            {"back", "Linear", {}, {{"units", int64_t{12}}}}})),
            why + "words.weight is read by words and middle/product too" + otherwise);
  EXPECT_EQ(refusal([](TrainJob& job) {
              layers({{"dense", "Linear", {}, {{"units", int64_t{14}}}},
                      {"back", "Linear", {}, {{"units", int64_t{12}}}}})(job);
              job.model.layers.back().attributes.set("tied_to", std::string("dense"));
            }),
            why + "dense.weight is read by dense/product too" + otherwise);
  // Updates of single rows do not include the rows of the lookup.
  TrainJob sampled = job_on(w, "sampled", kWhole);
  sampled.model.loss = {"SampledSoftmaxCrossEntropyLoss", {{"samples", int64_t{2}}}};
  const auto plan =
      plan_run(sampled.model, sampled.recipe, read_schema(sampled.dataset).value(), 1);
  EXPECT_EQ(plan.ok() ? "" : plan.error().message,
            "model.loss: sampled_softmax needs weights of its own, and wte.weight is read by wte "
            "too, expected softmax_cross_entropy");
}

}  // namespace
}  // namespace trainyard
