// Tests of a head and its loss that are split by class over several devices, which are host
// backends here: they must reproduce the losses of one device, use the planned memory, and load and
// write checkpoints of any sharding.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "kernels/alignment.h"
#include "src/checkpoint/safetensors.h"
#include "src/inference/predictor.h"
#include "src/job/recipe.h"
#include "src/job/run_plan.h"
#include "src/job/train_job.h"
#include "src/ops/all_reduce.h"
#include "src/ops/gemm.h"
#include "src/ops/row_exchange.h"
#include "src/planning/fit.h"
#include "src/planning/job_plan.h"
#include "src/planning/programs.h"
#include "src/train/replicated_session.h"
#include "src/train/trainer.h"
#include "tests/engine/fit_support.h"
#include "tests/engine/golden_batch.h"
#include "tests/engine/rank_support.h"
#include "tests/engine/split_support.h"
#include "tests/engine/train_support.h"
#include "tests/support/source_path.h"

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

TrainJob split_head_job_on(const Workspace& w, const std::string& name, Shard shard,
                           const Change& change = nullptr) {
  TrainJob job = testing::plain_job(w, name);
  job.model = {};
  job.model.layers = {
      {"", "Gemm", {}, {{"units", int64_t{24}}}}, {"", "Tanh", {}, {}}, {"head", "Gemm", {}, {}}};
  job.recipe.steps = 50;
  job.recipe.optimizer = default_optimizer("adamw");
  job.recipe.optimizer.learning_rate = 0.003;
  job.recipe.optimizer.weight_decay = 0.01;
  if (change) change(job);
  job.recipe.shard = shard;
  return job;
}

/// Runs the job on one device and with a split head on each number of ranks, and expects the same
/// loss curve.
void expect_the_curve_of_one_device(int64_t classes, const Change& change, double bound = 1e-5,
                                    std::vector<Shard> shards = {
                                        Shard::kHead, Shard::kOptimizer | Shard::kHead}) {
  const Workspace w;
  make_classes(w, classes, 120);
  Recorder expected;
  run(split_head_job_on(w, "one", Shard::kNone, change), 1, expected);
  ASSERT_EQ(expected.series["train/loss"].size(), 50u);
  testing::expect_the_curve_on({2, 4}, shards, expected, bound,
                               [&](const std::string& name, Shard shard) {
                                 return split_head_job_on(w, name, shard, change);
                               });
}

TEST(SplitHead, FollowsTheCurveOfOneDevice) {
  expect_the_curve_of_one_device(11, nullptr);
  expect_the_curve_of_one_device(11, optimizer("sgd", 0.02, 0.9));
}
// The last rank has no class, the one before it only half of its columns.
TEST(SplitHead, FollowsTheCurveWithFewerClassesThanColumns) {
  expect_the_curve_of_one_device(5, nullptr);
  expect_the_curve_of_one_device(2, nullptr);
}
TEST(SplitHead, FollowsTheCurveWithEverySupportedOptimizer) {
  for (const char* type : {"adam", "lion", "rmsprop"}) {
    SCOPED_TRACE(type);
    expect_the_curve_of_one_device(7, optimizer(type, 0.001));
  }
  // Muon leaves the head to AdamW.
  expect_the_curve_of_one_device(7, optimizer("muon", 0.002, 0.9), 1e-4, {Shard::kHead});
  expect_the_curve_of_one_device(7, optimizer("sgd", 0.02), 1e-5, {Shard::kHead});
}
TEST(SplitHead, FollowsTheCurveWithEveryKindOfTarget) {
  expect_the_curve_of_one_device(7, [](TrainJob& job) {
    job.model.loss = {"SoftmaxCrossEntropyLoss", {{"label_smoothing", 0.2}}};
  });
  expect_the_curve_of_one_device(7, [](TrainJob& job) {
    job.model.loss = {"SoftmaxCrossEntropyLoss",
                      {{"class_weights", std::vector<double>{1, 2, 0.5, 0, 3, 1, 1}},
                       {"label_smoothing", 0.1},
                       {"ignore_index", int64_t{2}}}};
  });
  expect_the_curve_of_one_device(7, [](TrainJob& job) {
    job.model.loss = {"SoftmaxCrossEntropyLoss", {{"class_weights", std::string("balanced")}}};
  });
}
TEST(SplitHead, FollowsTheCurveWithClippedGradients) {
  expect_the_curve_of_one_device(11, [](TrainJob& job) {
    job.recipe.clip_norm = 0.3;
    job.recipe.metrics = {"gradient_norm"};
  });
  expect_the_curve_of_one_device(11, [](TrainJob& job) { job.recipe.clip_value = 0.01; });
}
TEST(SplitHead, FollowsTheCurveWithMicroBatchesAveragesAndFrozenLayers) {
  expect_the_curve_of_one_device(11, [](TrainJob& job) {
    job.recipe.accumulate_steps = 2;
    job.recipe.clip_norm = 0.3;
    job.recipe.ema_decay = 0.9;
    job.recipe.keep_best.metric = "val/loss";
    job.recipe.parameter_groups = {{.match = "*.bias", .learning_rate_factor = 2}};
  });
  expect_the_curve_of_one_device(11, [](TrainJob& job) {
    job.recipe.parameter_groups = {{.match = "head.*", .freeze = true}};
  });
  expect_the_curve_of_one_device(11, [](TrainJob& job) {
    job.recipe.parameter_groups = {{.match = "gemm1.*", .freeze = true}};
    job.recipe.clip_norm = 0.3;
  });
  expect_the_curve_of_one_device(11,
                                 [](TrainJob& job) { job.recipe.recompute = Recompute::kFull; });
  expect_the_curve_of_one_device(11, [](TrainJob& job) {
    job.recipe.lora = {.rank = 2, .alpha = 4, .dropout = 0, .targets = {"gemm*"}};
  });
}
// The loss curve must equal that of one device, within the precision of 16 bits.
TEST(SplitHead, FollowsTheCurveIn16Bits) {
  for (const Precision precision : {Precision::kBf16, Precision::kFp16}) {
    SCOPED_TRACE(std::string(name_of(precision)));
    expect_the_curve_of_one_device(
        11, [&](TrainJob& job) { job.recipe.precision = precision; },
        precision == Precision::kFp16 ? 5e-3 : 3e-2);
  }
}

/// Returns a text model whose head has weights of its own and is applied to each position.
Change text_model() {
  return [](TrainJob& job) {
    job.model.layers = {{"", "Embedding", {}, {{"embedding_dim", int64_t{12}}}},
                        {"", "Gelu", {}, {}},
                        {"head", "Linear", {}, {}}};
    job.recipe.context_length = 6;
  };
}
TEST(SplitHead, FollowsTheCurveOverAVocabulary) {
  const Workspace w;
  make_text(w);
  Recorder expected;
  run(split_head_job_on(w, "one", Shard::kNone, text_model()), 1, expected);
  for (const int64_t ranks : {2, 4}) {
    SCOPED_TRACE(ranks);
    Recorder got;
    run(split_head_job_on(w, std::to_string(ranks), Shard::kHead, text_model()), ranks, got);
    expect_the_curve(expected, got, 1e-5);
  }
}

// With the head split over ranks, the losses equal those of PyTorch's plain run (golden_test.cc).
TEST(SplitHead, HasTheLossesOfPyTorch) {
  constexpr int64_t kPixels = 784, kClasses = 10;
  std::ifstream file(testing::source_path("tests/golden/pytorch_training.json"));
  const auto golden = nlohmann::json::parse(file);
  const auto& cases = golden["cases"];
  const auto expected =
      *std::ranges::find_if(cases, [](const auto& c) { return c["name"] == "mlp_adam"; });
  ModelSpec model;
  model.preset = "mlp";
  model.parameters.set("hidden", std::vector<int64_t>{512, 512});
  const ModelInterface interface { {kPixels}, 0, TargetForm::kClass, kClasses };
  Recipe recipe;
  recipe.optimizer.type = "adam";
  recipe.optimizer.learning_rate = expected["optimizer"]["learning_rate"];
  recipe.batch_size = expected["batch_size"];
  for (const int64_t ranks : {2, 4}) {
    for (const Shard shard : {Shard::kHead, Shard::kOptimizer | Shard::kHead}) {
      recipe.shard = shard;
      std::vector<RunPrograms> programs;
      for (int64_t r = 0; r < ranks; ++r) {
        programs.push_back(compile_step(model, recipe, interface, {r, ranks}).value());
      }
      ReplicatedSession session(std::move(programs), cpu_devices(ranks), 1);
      session.initialize(golden["seed"]);
      double worst = 0;
      for (int64_t step = 0; step < 50; ++step) {
        const testing::GoldenBatch batch = testing::golden_batch(
            golden["seed"], static_cast<uint64_t>(step), recipe.batch_size, kPixels, kClasses);
        const double loss = session
                                .run_step({std::as_bytes(std::span(batch.input)),
                                           std::as_bytes(std::span(batch.target)), step,
                                           static_cast<float>(recipe.optimizer.learning_rate)})
                                .loss;
        const double golden_loss = expected["losses"][static_cast<size_t>(step)];
        EXPECT_NEAR(loss, golden_loss, 1e-5) << "step " << step + 1 << " on " << ranks;
        worst = std::max(worst, std::fabs(loss - golden_loss));
      }
      std::printf("%lld ranks, %s: losses within %.1e of PyTorch\n", static_cast<long long>(ranks),
                  name_of(shard).c_str(), worst);
    }
  }
}

TEST(SplitHead, GivesTheSameBitsTwiceAndAfterAResume) {
  const Workspace w;
  make_classes(w, 11, 120);
  const auto change = [](TrainJob& job) {
    job.recipe.clip_norm = 0.5;
    job.recipe.checkpoint_every_steps = 7;
  };
  for (const int64_t ranks : {2, 4}) {
    for (const Shard shard : {Shard::kHead, Shard::kOptimizer | Shard::kHead}) {
      const std::string name = name_of(shard) + std::to_string(ranks);
      SCOPED_TRACE(name);
      const auto job_of = [&](const std::string& run) {
        return split_head_job_on(w, name + run, shard, change);
      };
      expect_the_same_bits_twice(job_of, ranks, 7);
    }
  }
}

// A checkpoint has whole tensors, so the sharding of the run that wrote it does not matter.
TEST(SplitHead, CheckpointsResumeInAnyShardingPlan) {
  const Workspace w;
  make_classes(w, 11, 120);
  const auto change = [](TrainJob& job) {
    job.recipe.checkpoint_every_steps = 5;
    job.recipe.ema_decay = 0.9;
    job.recipe.clip_norm = 1;
  };
  const TrainJob one = split_head_job_on(w, "one", Shard::kNone, change);
  Recorder expected;
  run(one, 1, expected);
  constexpr Shard kWhole = Shard::kNone, kState = Shard::kOptimizer, kHead = Shard::kHead,
                  kBoth = Shard::kOptimizer | Shard::kHead;
  const std::vector<std::vector<RankLayout>> ways = {
      {{4, kHead}, {1, kWhole}, {2, kHead}, {2, kState}, {4, kBoth}, {2, kWhole}, {2, kBoth}},
      {{1, kWhole}, {4, kBoth}, {4, kWhole}, {4, kHead}, {4, kState}, {2, kHead}, {1, kWhole}}};
  for (size_t i = 0; i < ways.size(); ++i) {
    const TrainJob job = split_head_job_on(w, "way" + std::to_string(i), kWhole, change);
    expect_the_curve_over(ways[i], 5, expected, job);
    EXPECT_LT(distance(job, one), 1e-4);
  }
}

// A model that several devices trained with a split head is saved as one device would save it, so
// predictions do not depend on the number of ranks.
TEST(SplitHead, ModelsPredictLikeThoseOfOneDevice) {
  const Workspace w;
  make_classes(w, 11, 120);
  const TrainJob one = split_head_job_on(w, "one", Shard::kNone),
                 split = split_head_job_on(w, "split", Shard::kHead);
  Recorder of_one, of_split;
  run(one, 1, of_one);
  run(split, 4, of_split);
  EXPECT_LT(distance(split, one), 1e-4);
  const auto backend = make_cpu_backend(1);
  const auto predictor = Predictor::open(split.model_output, *backend);
  ASSERT_TRUE(predictor.ok()) << predictor.error().message;
}

/// Returns a model most of whose memory is the head's.
Change wide(int64_t features) {
  return [=](TrainJob& job) {
    job.model.layers[0].attributes.set("units", features);
    job.recipe.steps = 3;
  };
}

TEST(SplitHead, RanksStoreOnlyTheirClasses) {
  constexpr int64_t kClasses = 1001, kFeatures = 96;
  const Workspace w;
  make_classes(w, kClasses, 1100);
  Recorder whole;
  run(split_head_job_on(w, "whole", Shard::kNone, wide(kFeatures)), 4, whole);
  EXPECT_EQ(whole.plan.head_saved_bytes, 0);
  const auto padded = [](int64_t elements) { return round_up(4 * elements, kHostAlignment); };
  const int64_t rest = padded(8 * kFeatures) + padded(kFeatures);
  for (const int64_t ranks : {2, 4}) {
    SCOPED_TRACE(ranks);
    Recorder split;
    const TrainResult result = run(
        split_head_job_on(w, std::to_string(ranks), Shard::kHead, wide(kFeatures)), ranks, split);
    EXPECT_EQ(result.arena_planned_bytes, result.arena_used_bytes);
    EXPECT_EQ(split.plan.memory.total(), result.arena_planned_bytes);
    const int64_t columns = (kClasses + ranks - 1) / ranks;
    const int64_t head = padded(columns * kFeatures) + padded(columns);
    const MemoryBreakdown &part = split.plan.memory, &all = whole.plan.memory;
    EXPECT_EQ(part.parameter_bytes, rest + head);
    EXPECT_EQ(part.optimizer_bytes, 2 * (rest + head));
    EXPECT_EQ(split.plan.head_saved_bytes, all.parameter_bytes - part.parameter_bytes);
    EXPECT_EQ(split.plan.shard_saved_bytes, all.optimizer_bytes - part.optimizer_bytes);
    EXPECT_LT(part.parameter_bytes, all.parameter_bytes / ranks + rest + 8 * kHostAlignment);
    EXPECT_LT(result.arena_planned_bytes, all.total() * 2 / (ranks + 1));
    EXPECT_EQ(split.plan.checkpoints.size_bytes, whole.plan.checkpoints.size_bytes);
    TrainJob by_parts = split_head_job_on(w, "by parts", Shard::kHead, wide(kFeatures));
    by_parts.recipe.accumulate_steps = 2;
    const DatasetSchema schema = read_schema(by_parts.dataset).value();
    EXPECT_EQ(
        plan_run(by_parts.model, by_parts.recipe, schema, ranks).value().checkpoints.size_bytes,
        whole.plan.checkpoints.size_bytes)
        << "sums over micro-batches are in none";
    EXPECT_LT(split.plan.flops_per_step, whole.plan.flops_per_step) << "one update of the head";
  }
}

TEST(SplitHead, TrainsAModelWhoseHeadFitsNoDevice) {
  constexpr int64_t kClasses = 1001, kFeatures = 96;
  const Workspace w;
  make_classes(w, kClasses, 1100);
  // The head's weights, gradients and state exceed the memory of a device.
  constexpr int64_t kLimit = 4 * kClasses * kFeatures * 3;
  Recorder unbounded, refused, sharded, r;
  run(split_head_job_on(w, "unbounded", Shard::kNone, wide(kFeatures)), 1, unbounded);
  EXPECT_GT(unbounded.plan.memory.parameter_bytes + unbounded.plan.memory.optimizer_bytes, kLimit);
  EXPECT_THROW((void)train(split_head_job_on(w, "whole", Shard::kNone, wide(kFeatures)),
                           small_devices(4, kLimit), local_files(), refused, {}),
               std::bad_alloc);
  const auto result = train(split_head_job_on(w, "split", Shard::kHead, wide(kFeatures)),
                            small_devices(4, kLimit), local_files(), r, {});
  ASSERT_TRUE(result.ok()) << result.error().message;
  expect_the_curve(unbounded, r, 1e-5);
}

TEST(SplitHead, IsChosenIfNothingElseMakesAJobFit) {
  const Workspace w;
  make_classes(w, 1001, 1100);
  const TrainJob job = split_head_job_on(w, "job", Shard::kNone, wide(96));
  const DatasetSchema schema = read_schema(job.dataset).value();
  const auto bytes = [&](Shard shard) {
    Recipe recipe = job.recipe;
    recipe.shard = shard;
    const RunPlan plan = plan_run(job.model, recipe, schema, 4).value();
    return plan.memory.total() + plan.host_bytes;
  };
  ASSERT_LT(bytes(Shard::kHead), bytes(Shard::kOptimizer));
  const auto fit =
      find_fit(job.model, job.recipe, schema, bytes(Shard::kHead), {true, true, true}, 4);
  ASSERT_TRUE(fit.has_value());
  EXPECT_EQ(fit->shard, Shard::kHead);
  EXPECT_GT(fit->plan.head_saved_bytes, 0);
  const auto less =
      find_fit(job.model, job.recipe, schema, bytes(Shard::kOptimizer), {true, true, true}, 4);
  ASSERT_TRUE(less.has_value());
  EXPECT_EQ(less->shard, Shard::kOptimizer) << "it is the smaller change";
  const FitAdvice advice = advise_fit(job.model, job.recipe, schema, bytes(Shard::kHead), 4);
  EXPECT_EQ(advice.shard, Shard::kHead);
}

TEST(SplitHead, PlansTheExchangeOfRanks) {
  const Workspace w;
  make_classes(w, 11, 120);
  TrainJob job = split_head_job_on(w, "job", Shard::kHead);
  const DatasetSchema schema = read_schema(job.dataset).value();
  for (const int64_t accumulate_steps : {1, 2}) {
    SCOPED_TRACE(accumulate_steps);
    job.recipe.accumulate_steps = accumulate_steps;
    const auto exchanges = plan_run(job.model, job.recipe, schema, 4).value().exchanges;
    ASSERT_EQ(exchanges.size(), 3u);
    // The inputs and labels of all 16 rows, and four numbers for each row from each rank.
    const int64_t gathered =
        4 * 16 * (24 + 1) + accumulate_steps * (4 * 4 * 4 * 16 / accumulate_steps);
    EXPECT_EQ(exchanges[0].kind, "gather_rows");
    EXPECT_EQ(exchanges[0].axis, "rows");
    EXPECT_EQ(exchanges[0].count, 2 * accumulate_steps);
    EXPECT_EQ(exchanges[0].bytes, gathered);
    EXPECT_EQ(exchanges[0].sent_bytes, gathered * 3 / 4);
    EXPECT_EQ(exchanges[1].kind, "scatter_rows");
    EXPECT_EQ(exchanges[1].axis, "rows");
    EXPECT_EQ(exchanges[1].count, accumulate_steps);
    EXPECT_EQ(exchanges[1].bytes, 4 * 16 * 24);
    EXPECT_EQ(exchanges[2].kind, "all_reduce");
    EXPECT_EQ(exchanges[2].bytes, 4 * (8 * 24 + 24)) << "nothing of the head";
  }
}

// All ranks run the same program with the same memory layout, and every exchange has its own
// number.
TEST(SplitHead, RanksDifferOnlyByAttributes) {
  const Workspace w;
  make_classes(w, 5, 120);
  TrainJob job = split_head_job_on(w, "job", Shard::kOptimizer | Shard::kHead);
  job.recipe.clip_norm = 1;
  const DatasetSchema schema = read_schema(job.dataset).value();
  for (const int64_t accumulate_steps : {1, 2}) {
    job.recipe.accumulate_steps = accumulate_steps;
    const RunShape shape = check_recipe(job.recipe, job.model, schema, 4).value();
    const RunPrograms first = compile_run(job.model, job.recipe, schema, shape, 0).value();
    const RunPrograms last = compile_run(job.model, job.recipe, schema, shape, 3).value();
    EXPECT_EQ(first.train.program.dump_memory(), last.train.program.dump_memory());
    EXPECT_EQ(first.evaluate->program.dump_memory(), last.evaluate->program.dump_memory());
    EXPECT_EQ(exchanges_of(first, accumulate_steps), exchanges_of(last, accumulate_steps));
    EXPECT_EQ(exchanges_of(first).front(), "head/gather");
    std::set<int64_t> numbers;
    for (const Node& node : first.train.program.graph.nodes()) {
      if (!starts_exchange(node.op->type())) continue;
      EXPECT_TRUE(numbers.insert(node.attributes.get_int("bucket", -1)).second) << node.name;
    }
    EXPECT_GE(numbers.size(), 3u);
  }
}

// A graph refuses a node that would read a shard as a whole tensor or the reverse.
TEST(SplitHead, GraphsRefuseAConversionThatIsNotPlanned) {
  Graph graph;
  const auto add = [&](const char* name, Shape shape, Spread spread) {
    TensorInfo info{name, {std::move(shape), DType::kF32}, Role::kInput, Layout::kRowMajor, kNoNode,
                    {}};
    info.spread = spread;
    return graph.add_tensor(std::move(info));
  };
  const TensorId x = add("x", {4, 3}, Spread::kOwn), all = add("all", {8, 3}, Spread::kGathered);
  const TensorId w = add("w", {5, 3}, Spread::kClasses), whole = add("whole", {5, 3}, Spread::kOwn);
  const TensorId dw = add("dw", {5, 3}, Spread::kClasses), dx = add("dx", {8, 3}, Spread::kSummand);
  const Attributes rows{{"bucket", int64_t{1}}, {"ranks", int64_t{2}}};
  const auto refused = [&](const char* name, const Op& op, Attributes attributes,
                           std::vector<TensorId> inputs) {
    const auto node = graph.add_node(name, op, std::move(attributes), std::move(inputs), {name});
    EXPECT_FALSE(node.ok()) << name;
    return node.ok() ? "" : node.error().reason;
  };
  EXPECT_EQ(refused("own rows by classes", *gemm_op(), {{"transB", int64_t{1}}}, {x, w}),
            "SHARDING_UNSUPPORTED");
  EXPECT_EQ(refused("all rows by all classes", *gemm_op(), {{"transB", int64_t{1}}}, {all, whole}),
            "SHARDING_UNSUPPORTED");
  EXPECT_EQ(refused("mean of classes", *all_reduce_start_op(), {{"bucket", int64_t{0}}}, {dw}),
            "SHARDING_UNSUPPORTED");
  EXPECT_EQ(refused("rows of what is whole", *scatter_rows_op(), rows, {all}),
            "SHARDING_UNSUPPORTED");
  EXPECT_EQ(refused("gathered sums", *gather_rows_op(), rows, {dx}), "SHARDING_UNSUPPORTED");
  const auto z = graph.add_node("z", *gemm_op(), {{"transB", int64_t{1}}}, {all, w}, {"z"});
  ASSERT_TRUE(z.ok()) << z.error().message;
  const TensorId scores = graph.node(*z).outputs[0];
  EXPECT_EQ(graph.tensor(scores).spread, Spread::kClasses);
  EXPECT_EQ(refused("tanh of classes", get_op("Tanh"), {}, {scores}), "SHARDING_UNSUPPORTED");
  graph.verify();
}

TEST(SplitHead, RefusalsNameTheFieldAndWhatIsAccepted) {
  const Workspace w;
  make_classes(w, 5, 120);
  const auto refusal = [&](int64_t ranks, const Change& change, Shard shard = Shard::kHead) {
    const TrainJob job = split_head_job_on(w, "a", shard, change);
    const auto plan = plan_run(job.model, job.recipe, read_schema(job.dataset).value(), ranks);
    return plan.ok() ? "" : plan.error().message;
  };
  EXPECT_EQ(refusal(2, nullptr), "");
  EXPECT_EQ(refusal(1, nullptr),
            "resources.shard: head needs resources.gpus above 1, expected that or shard: none");
  EXPECT_EQ(refusal(2, optimizer("adafactor", 0.01)),
            "resources.shard: head needs an optimizer that updates each row of the head by itself, "
            "and adafactor scales by all of them; expected shard: none, or another "
            "recipe.optimizer");
  EXPECT_EQ(refusal(2, optimizer("muon", 0.01), Shard::kOptimizer | Shard::kHead),
            "resources.shard: muon updates tensors as a whole, expected shard: none or head, or as "
            "recipe.optimizer one of adam, adamw, lion, rmsprop, and sgd with momentum");
  const std::string otherwise = ", expected shard: optimizer or none";
  EXPECT_EQ(refusal(2,
                    [](TrainJob& job) {
                      job.model.loss = {"KullbackLeiblerDivergence", {{"label_smoothing", 0.1}}};
                    }),
            "resources.shard: head splits the classes of a softmax cross-entropy, and the loss is "
            "KullbackLeiblerDivergence" +
                otherwise);
  EXPECT_EQ(refusal(2,
                    [](TrainJob& job) {
                      job.model.layers.push_back({"last", "Tanh", {}, {}});
                      job.model.layers[2].attributes.set("units", int64_t{5});
                    }),
            "resources.shard: head needs a gemm or linear layer as the model's last layer, without "
            "recipe.lora on it, and last is a Tanh" +
                otherwise);
  EXPECT_EQ(refusal(2,
                    [](TrainJob& job) {
                      job.recipe.lora = {.rank = 2, .alpha = 4, .dropout = 0, .targets = {"head"}};
                    }),
            "resources.shard: head needs a gemm or linear layer as the model's last layer, without "
            "recipe.lora on it, and head is a Add" +
                otherwise);
}

}  // namespace
}  // namespace trainyard
