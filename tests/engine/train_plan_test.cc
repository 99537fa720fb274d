// Tests of the plans and refusals of plan_run, and that evaluation counts each row once for any
// batch size.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <thread>

#include "kernels/math/philox.h"
#include "src/base/philox.h"
#include "src/job/recipe.h"
#include "src/job/run_plan.h"
#include "src/plan/liveness.h"
#include "src/plan/placement.h"
#include "src/planning/fit.h"
#include "src/planning/job_plan.h"
#include "src/planning/resident_plan.h"
#include "src/train/evaluate.h"
#include "src/train/initialize.h"
#include "src/train/session.h"
#include "tests/engine/fit_support.h"

namespace trainyard {
namespace {

DatasetSchema digits_schema(int64_t rows) {
  DatasetSchema schema;
  schema.kind = DatasetSchema::Kind::kImage;
  schema.image = {1, 8, 8};
  schema.target.classes = {"a", "b", "c"};
  schema.train_rows = rows;
  return schema;
}

ModelSpec mlp() {
  ModelSpec spec;
  spec.preset = "mlp";
  spec.parameters.set("hidden", std::vector<int64_t>{12});
  return spec;
}

Recipe good_recipe() {
  Recipe r;
  r.epochs = 2;
  r.batch_size = 10;
  return r;
}

Error refusal(const Recipe& recipe, int64_t rows = 100) {
  const auto plan = plan_run(mlp(), recipe, digits_schema(rows));
  if (plan.ok()) {
    ADD_FAILURE() << "expected a refusal";
    return {};
  }
  return plan.error();
}

template <typename Change>
Error refusal_after(Change change) {
  Recipe r = good_recipe();
  change(r);
  return refusal(r);
}

struct StepMemory {
  MemoryBreakdown planned;
  int64_t workspace_bytes = 0;
  int64_t varying_bytes() const {  // what precision can change: all that is not kept between steps
    return planned.activation_bytes + planned.gradient_bytes + workspace_bytes;
  }
};

StepMemory step_memory(const ModelSpec& model, const ModelInterface& interface, int64_t batch,
                       Precision precision, Backend& backend) {
  Recipe recipe;
  recipe.optimizer.type = "adamw";
  recipe.precision = precision;
  RunPrograms programs;
  programs.train = compile_training(model, recipe, interface, batch).value();
  StepMemory memory{programs.train.program.memory};
  memory.workspace_bytes = measure_workspace(std::move(programs), backend);
  return memory;
}

/// Returns the plan's bytes on a CPU, where device memory is host memory.
int64_t bytes_on_cpu(const RunPlan& plan) { return plan.memory.total() + plan.host_bytes; }

/// The transient segment without the longer lifetimes of two lanes (src/plan/lanes.h).
int64_t bytes_in_one_lane(const Program& p) {
  return place_buffers(find_buffers(p.graph, p.order, p.alignment)).size_bytes;
}

// This test catches a GPU's plan that includes the scores of a whole batch, and one that lacks
// scores that are read back.
TEST(PlanRun, ALanguageModelOnAGpuStoresNoScores) {
  constexpr int64_t kVocabulary = 5000, kContext = 32;
  ModelSpec gpt2;
  gpt2.preset = "gpt2";
  gpt2.parameters = {{"size", std::string("nano")}};
  const ModelInterface text{{kContext}, kVocabulary, TargetForm::kNextToken, kVocabulary};
  const auto program = [](const ModelSpec& model, const Recipe& recipe, const ModelInterface& data,
                          Processor processor) {
    return compile_step(model, recipe, data, {}, {kHostAlignment, processor}).value().train.program;
  };
  for (const Precision precision : {Precision::kFp32, Precision::kBf16, Precision::kFp16}) {
    for (const int64_t micro_batches : {1, 2}) {
      SCOPED_TRACE(std::string(name_of(precision)) + ", " + std::to_string(micro_batches));
      Recipe recipe;
      recipe.batch_size = 8 * micro_batches;
      recipe.accumulate_steps = micro_batches;
      recipe.precision = precision;
      const Program cpu = program(gpt2, recipe, text, Processor::kCpu),
                    gpu = program(gpt2, recipe, text, Processor::kGpu);
      constexpr int64_t kScores = 8 * kContext * kVocabulary;
      // at least three tensors of scores, with 4 bytes each
      EXPECT_GE(cpu.transient_bytes - bytes_in_one_lane(gpu), 3 * kScores);
      int64_t copies = 0;  // of parameters in 16 bits, which only a GPU keeps
      for (const TensorInfo& t : gpu.graph.tensors()) {
        if (t.role == Role::kCopy) {
          const int64_t bytes = 2 * t.type.shape.elements();
          copies += (bytes + kHostAlignment - 1) / kHostAlignment * kHostAlignment;
        }
        if (t.role != Role::kActivation) continue;
        EXPECT_NE(t.type.shape.elements(), kScores) << t.name;
      }
      EXPECT_EQ(gpu.persistent_bytes - cpu.persistent_bytes, copies);
      EXPECT_EQ(copies > 0, precision != Precision::kFp32 && micro_batches == 1);
    }
  }
  const ModelInterface image{{1, 8, 8}, 0, TargetForm::kClass, 3};
  const Program cpu = program(mlp(), good_recipe(), image, Processor::kCpu),
                gpu = program(mlp(), good_recipe(), image, Processor::kGpu);
  EXPECT_TRUE(gpu.graph.find_tensor("fc2").has_value());
  // In addition to the CPU's tensors, the GPU's program has the mask of a ReLU; and in two lanes,
  // tensors are in use for longer.
  const TensorId mask = gpu.graph.find_tensor("relu1/mask").value();
  EXPECT_FALSE(gpu.lanes.empty());
  const int64_t in_one_lane = bytes_in_one_lane(gpu);
  EXPECT_LE(in_one_lane, cpu.transient_bytes + gpu.graph.tensor(mask).stored_bytes());
  EXPECT_LE(gpu.transient_bytes, 2 * in_one_lane);
  EXPECT_EQ(gpu.persistent_bytes, cpu.persistent_bytes);
}

// The plan saves half of the activations, minus the conversions and the copies of weights.
TEST(PlanRun, Bf16SavesMemoryWhereActivationsAreMost) {
  struct Row {
    const char* preset;
    Attributes parameters;
    ModelInterface interface;
    int64_t batch;
    double share_max;  // bf16's largest share of fp32's bytes, without parameters and optimizer
  };
  const ModelInterface image{{3, 32, 32}, 0, TargetForm::kClass, 10};
  const std::vector<Row> rows = {
      {"resnet18", {}, image, 32, 0.8},
      {"gpt2", {{"size", std::string("mini")}}, {{256}, 65, TargetForm::kNextToken, 65}, 8, 0.7},
      {"vit_tiny", {{"patch_size", int64_t{4}}}, image, 32, 0.7},
  };
  const auto backend = make_cpu_backend(2);
  for (const Row& row : rows) {
    SCOPED_TRACE(row.preset);
    ModelSpec model;
    model.preset = row.preset;
    model.parameters = row.parameters;
    const auto memory = [&](Precision precision) {
      return step_memory(model, row.interface, row.batch, precision, *backend);
    };
    const StepMemory wide = memory(Precision::kFp32), narrow = memory(Precision::kBf16);
    EXPECT_EQ(narrow.planned.parameter_bytes, wide.planned.parameter_bytes);
    EXPECT_EQ(narrow.planned.optimizer_bytes, wide.planned.optimizer_bytes);
    const double share =
        static_cast<double>(narrow.varying_bytes()) / static_cast<double>(wide.varying_bytes());
    EXPECT_LT(share, row.share_max);
    for (const auto& [name, m] : {std::pair{"fp32", wide}, std::pair{"bf16", narrow}}) {
      std::printf("%s %s: activations %.1f MiB, gradients %.1f, workspace %.1f, all %.1f\n",
                  row.preset, name, static_cast<double>(m.planned.activation_bytes) / 0x1p20,
                  static_cast<double>(m.planned.gradient_bytes) / 0x1p20,
                  static_cast<double>(m.workspace_bytes) / 0x1p20,
                  static_cast<double>(m.planned.total() + m.workspace_bytes) / 0x1p20);
    }
  }
}

TEST(PlanRun, CountsStepsParametersAndBytes) {
  Recipe r = good_recipe();
  r.validation_split = 0.25;
  const RunPlan plan = plan_run(mlp(), r, digits_schema(103)).value();
  EXPECT_EQ(plan.validation_rows, 26);
  EXPECT_EQ(plan.train_rows, 77);
  EXPECT_EQ(plan.steps_per_epoch, 7);
  EXPECT_EQ(plan.steps_total, 14);
  EXPECT_EQ(plan.parameter_count, 64 * 12 + 12 + 12 * 3 + 3);
  EXPECT_GE(plan.memory.parameter_bytes, plan.parameter_count * 4);
  EXPECT_GT(plan.memory.activation_bytes, 0);
  EXPECT_GE(plan.flops_per_step, 3 * 2 * 10 * (64 * 12 + 12 * 3) - 2 * 10 * 64 * 12);
}

TEST(PlanRun, CountsTheLastBatchOfAnEpochThatDropsNoRows) {
  Recipe r = good_recipe();
  r.drop_last = false;
  r.validation_split = 0.25;
  const RunPlan plan = plan_run(mlp(), r, digits_schema(103)).value();
  EXPECT_EQ(plan.train_rows, 77);
  EXPECT_EQ(plan.steps_per_epoch, 8);
  EXPECT_EQ(plan.steps_total, 16);
  EXPECT_EQ(plan.work.steps, 16);
  EXPECT_EQ(plan.work.evaluations, 2) << "one for each epoch";
  r.batch_size = 100;
  EXPECT_EQ(plan_run(mlp(), r, digits_schema(103)).value().steps_per_epoch, 1) << "rows repeat";
  r.batch_size = 11;
  EXPECT_EQ(plan_run(mlp(), r, digits_schema(103)).value().steps_per_epoch, 7) << "no row is left";
  r.batch_size = (int64_t{1} << 31) + 1;
  EXPECT_EQ(plan_run(mlp(), r, digits_schema(103)).error().message,
            "recipe.batch_size: 2147483649 is out of range, expected 1..2147483648");
}

// The bytes of a step on a GPU with a resident dataset: row numbers rounded up to 64 bytes, and 64
// bytes for each sample; a loss and the scores of each micro-batch; the gradient norm; the results
// of loss scaling.
constexpr int64_t kStepOfTen = 64 + 640 + 64 + 128 + 3 * 64;
constexpr int64_t kStepOfTenByFive = 128 + 640 + 5 * (64 + 64) + 3 * 64;
constexpr int64_t kStepOfFive = 64 + 320 + 64 + 64 + 3 * 64;

// The expected bytes are rows of 64 bytes, a table of 1 KiB, and the buffers of the steps that are
// submitted together.
TEST(PlanRun, ReportsTheResidentDataset) {
  const auto dataset_bytes = [](const Recipe& recipe, int64_t rows = 100, int64_t ranks = 1) {
    return plan_run(mlp(), recipe, digits_schema(rows), ranks).value().dataset_bytes;
  };
  Recipe recipe = good_recipe();
  EXPECT_EQ(dataset_bytes(recipe), 6400 + 1024 + 16 * kStepOfTen);
  EXPECT_EQ(dataset_bytes(recipe, 100, 2), 6400 + 1024 + kStepOfFive) << "all rows on each rank";
  recipe.accumulate_steps = 5;
  EXPECT_EQ(dataset_bytes(recipe), 6400 + 1024 + 16 * kStepOfTenByFive);
  recipe.accumulate_steps = 1;
  recipe.augmentation = {{"random_horizontal_flip"}, {"cutout", {{"size", int64_t{3}}}}};
  EXPECT_EQ(dataset_bytes(recipe), 6400 + 1024 + 64 + 16 * kStepOfTen) << "with black and the mean";
  EXPECT_EQ(plan_run(mlp(), recipe, digits_schema(100)).value().memory.total(),
            plan_run(mlp(), good_recipe(), digits_schema(100)).value().memory.total());
  recipe.augmentation.push_back({"random_rotation", {{"degrees", 5.0}}});
  EXPECT_EQ(dataset_bytes(recipe), 0) << "is left to the host";
  recipe.augmentation = {{"mixup"}};
  EXPECT_EQ(dataset_bytes(recipe), 0) << "is left to the host";
  const int64_t rows = kResidentBytesMax / 64;
  EXPECT_EQ(dataset_bytes(good_recipe(), rows), kResidentBytesMax + 1024 + 16 * kStepOfTen);
  EXPECT_EQ(dataset_bytes(good_recipe(), rows + 1), 640 + 1024 + 640) << "a batch as it is stored";
  EXPECT_EQ(dataset_bytes(recipe, rows + 1), 0) << "is left to the host";
}

// A batch of 25 rows is evaluated (13 and 12 on two ranks), and each row takes 64 bytes. With
// augmentation, evaluation needs a second table.
TEST(PlanRun, ReportsTheMemoryOfResidentEvaluations) {
  const auto dataset_bytes = [](const Recipe& recipe, int64_t ranks = 1) {
    return plan_run(mlp(), recipe, digits_schema(100), ranks).value().dataset_bytes;
  };
  Recipe recipe = good_recipe(), moved = good_recipe();
  moved.augmentation = {{"random_horizontal_flip"}};
  const int64_t without = dataset_bytes(recipe), moved_without = dataset_bytes(moved);
  const int64_t by_two_without = dataset_bytes(recipe, 2);
  recipe.validation_split = moved.validation_split = 0.25;
  EXPECT_EQ(dataset_bytes(recipe), without + 25 * 64);
  EXPECT_EQ(dataset_bytes(recipe, 2), by_two_without + 13 * 64);
  EXPECT_EQ(dataset_bytes(moved), moved_without + 25 * 64 + 1024);
}

// The host stores the copy from which a checkpoint is written, and five batches of the loader.
TEST(PlanRun, ReportsTheMemoryOfTheHost) {
  const auto plan_of = [](const Recipe& recipe) {
    return plan_run(mlp(), recipe, digits_schema(100)).value();
  };
  Recipe recipe = good_recipe();
  RunPlan plan = plan_of(recipe);
  const int64_t weights = plan.memory.parameter_bytes + plan.memory.state_bytes;
  const int64_t batches = 5 * plan.memory.input_bytes;
  EXPECT_GE(plan.memory.input_bytes, 10 * (64 + 1) * 4);
  EXPECT_EQ(plan.host_bytes, weights + plan.memory.optimizer_bytes + batches);
  recipe.accumulate_steps = 5;
  EXPECT_GE(plan_of(recipe).host_bytes - weights - plan.memory.optimizer_bytes,
            5 * 10 * (64 + 1) * 4)
      << "all micro-batches of a step";
  recipe.accumulate_steps = 1;
  recipe.optimizer.type = "adamw";
  plan = plan_of(recipe);
  EXPECT_GE(plan.memory.optimizer_bytes, 2 * 4 * plan.parameter_count);
  EXPECT_EQ(plan.host_bytes, weights + plan.memory.optimizer_bytes + 5 * plan.memory.input_bytes);
  recipe.keep_best.metric = "val/loss";
  recipe.validation_split = 0.2;
  EXPECT_EQ(plan_of(recipe).host_bytes - plan.host_bytes, weights) << "the best so far";
}

TEST(PlanRun, OnlyShortStepsOfOneDeviceAreSubmittedTogether) {
  const auto together = [](const std::vector<int64_t>& widths, int64_t ranks = 1,
                           double ema_decay = 0) {
    ModelSpec model;
    model.preset = "mlp";
    model.parameters.set("hidden", widths);
    Recipe recipe = good_recipe();
    recipe.ema_decay = ema_decay;
    const DatasetSchema schema = digits_schema(100);
    const RunShape shape = check_recipe(recipe, model, schema, ranks).value();
    const RunPrograms programs = compile_run(model, recipe, schema, shape).value();
    return plan_step_slots(programs, shape.micro_batches, {0, ranks}).together;
  };
  EXPECT_EQ(together({12}), kStepsTogetherMax);
  EXPECT_EQ(together({12}, 1, 0.9), kStepsTogetherMax);
  EXPECT_EQ(together({12}, 2), 1);
  EXPECT_EQ(together({20'000, 20'000}), 1) << "400 million parameters: milliseconds of bytes";
}

TEST(PlanRun, CountsResidentRowsInTheirStoredForm) {
  DatasetSchema table;
  table.columns = {{ColumnSchema::Kind::kNumeric, "a", {}},
                   {ColumnSchema::Kind::kCategorical, "b", {"x", "y", "z"}}};
  table.target.classes = {"a", "b"};
  table.train_rows = 100;
  constexpr int64_t kTableStep = kStepOfTen;
  ModelSpec model = mlp();
  EXPECT_EQ(plan_run(model, good_recipe(), table).value().dataset_bytes,
            100 * 4 * 4 + 16 * kTableStep);
  model.parameters.set("embedding", std::string("auto"));
  EXPECT_EQ(plan_run(model, good_recipe(), table).value().dataset_bytes, 832 + 16 * kTableStep)
      << "100 rows of a number and a code, to a multiple of 64";
}

TEST(PlanRun, NamesTheFieldTheValueAndWhatIsAccepted) {
  const Error batch = refusal_after([](Recipe& r) { r.batch_size = 101; });
  EXPECT_EQ(batch.message,
            "recipe.batch_size: 101 is larger than the 100 training rows, expected 1..100, or "
            "recipe.drop_last: false, which repeats rows");
  EXPECT_EQ(batch.violations[0].field, "recipe.batch_size");
  EXPECT_EQ(refusal_after([](Recipe& r) { r.batch_size = 0; }).violations[0].field,
            "recipe.batch_size");
  EXPECT_EQ(refusal_after([](Recipe& r) { r.epochs = -1; }).message,
            "recipe.epochs: -1 is out of range, expected 1..1000000");
  EXPECT_EQ(refusal_after([](Recipe& r) { r.steps = 5; }).violations[0].field, "recipe");
  EXPECT_EQ(refusal_after([](Recipe& r) { r.epochs = 0; }).reason, "FIELD_REQUIRED");
  EXPECT_EQ(refusal_after([](Recipe& r) { r.keep_checkpoints = 0; }).violations[0].field,
            "recipe.keep_checkpoints");
  EXPECT_EQ(refusal_after([](Recipe& r) { r.schedule.warmup_steps = 21; }).message,
            "recipe.schedule.warmup_steps: 21 is more than the job's 20 steps, expected 0..20");
}

TEST(PlanRun, ReportsTheLongestTimeLostByAKill) {
  Recipe recipe = good_recipe();
  const CheckpointPlan by_time = plan_run(mlp(), recipe, digits_schema(100))->checkpoints;
  EXPECT_EQ(by_time.lost_steps_max, 0);
  EXPECT_EQ(by_time.lost_seconds_max, 5);
  EXPECT_GT(by_time.size_bytes, 0);
  recipe.checkpoint_every_steps = 7;
  const CheckpointPlan by_steps = plan_run(mlp(), recipe, digits_schema(100))->checkpoints;
  EXPECT_EQ(by_steps.lost_steps_max, 7);
  EXPECT_EQ(by_steps.lost_seconds_max, 0);
  EXPECT_EQ(by_steps.size_bytes, by_time.size_bytes);
  recipe.checkpoint_every_steps = 1000;
  EXPECT_EQ(plan_run(mlp(), recipe, digits_schema(100))->checkpoints.lost_steps_max, 20)
      << "all of the job's";
}

TEST(PlanRun, RefusesToKeepCheckpointsThatAreNeverWritten) {
  // The job has two epochs of 10 steps.
  const auto after = [](int64_t every, int64_t between) {
    return refusal_after([&](Recipe& r) {
      r.keep_checkpoints_every_steps = every;
      r.checkpoint_every_steps = between;
    });
  };
  EXPECT_EQ(after(8, 5).message,
            "recipe.keep_checkpoints_every_steps: 8 is not a multiple of the 5 steps from one "
            "checkpoint to the next (recipe.checkpoint_every_steps), expected 5, 10 and so on");
  EXPECT_EQ(after(25, 5).message,
            "recipe.keep_checkpoints_every_steps: 25 is more than the job's 20 steps and keeps no "
            "checkpoint");
  EXPECT_EQ(after(-1, 5).violations[0].field, "recipe.keep_checkpoints_every_steps");
  const Error best = refusal_after([](Recipe& r) { r.keep_best_checkpoint = true; });
  EXPECT_EQ(best.message,
            "recipe.keep_best_checkpoint: has no effect without recipe.keep_best; remove it or set "
            "recipe.keep_best.metric");
  Recipe recipe = good_recipe();
  recipe.checkpoint_every_steps = 5;
  recipe.keep_checkpoints_every_steps = 20;
  EXPECT_TRUE(plan_run(mlp(), recipe, digits_schema(100)).ok()) << "the last step's alone";
  recipe.checkpoint_every_steps = 0;
  recipe.keep_checkpoints_every_steps = 7;
  EXPECT_TRUE(plan_run(mlp(), recipe, digits_schema(100)).ok())
      << "those are written by themselves";
}

TEST(PlanRun, RefusesEveryBadLearningRateAndSplit) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double rate : {0.0, -1.0, nan, infinity, 1e7}) {
    const Error e = refusal_after([&](Recipe& r) { r.optimizer.learning_rate = rate; });
    EXPECT_EQ(e.violations[0].field, "recipe.optimizer.learning_rate") << rate;
  }
  for (const double split : {-0.1, 0.91, nan, infinity}) {
    const Error e = refusal_after([&](Recipe& r) { r.validation_split = split; });
    EXPECT_EQ(e.violations[0].field, "recipe.validation_split") << split;
  }
  EXPECT_EQ(refusal_after([](Recipe& r) { r.validation_split = 0.001; }).message,
            "recipe.validation_split: 0.001 of 100 rows leaves no validation row, expected a share "
            "that leaves both");
}

TEST(PlanRun, RefusesFieldsWithoutEffect) {
  const Error momentum = refusal_after([](Recipe& r) {
    r.optimizer.type = "adam";
    r.optimizer.momentum = 0.9;
  });
  EXPECT_EQ(momentum.reason, "FIELD_UNUSED");
  EXPECT_EQ(momentum.violations[0].field, "recipe.optimizer.momentum");
  EXPECT_EQ(refusal_after([](Recipe& r) { r.optimizer.beta1 = 0.5; }).reason, "FIELD_UNUSED");
  EXPECT_EQ(refusal_after([](Recipe& r) { r.schedule.step_size = 3; }).reason, "FIELD_UNUSED");
  EXPECT_EQ(refusal_after([](Recipe& r) { r.evaluate_every_steps = 3; }).reason, "FIELD_UNUSED");
}

TEST(PlanRun, ReportsAllProblemsAtOnce) {
  const Error e = refusal_after([](Recipe& r) {
    r.batch_size = 1000;
    r.epochs = 2000000;
    r.optimizer.learning_rate = -1;
    r.optimizer.momentum = 2;
    r.keep_checkpoints = 1000;
  });
  EXPECT_EQ(e.violations.size(), 5u) << e.message;
  EXPECT_NE(e.message.find("(and 4 more problems)"), std::string::npos) << e.message;
}

TEST(JobPlan, LayersSumToTheProgram) {
  const JobPlan plan =
      plan_job(mlp(), good_recipe(), digits_schema(100), PlanDump::kProgram).value();
  int64_t parameters = 0;
  for (const LayerRow& row : plan.layers) parameters += row.parameter_count;
  EXPECT_EQ(parameters, plan.run.parameter_count);
  EXPECT_EQ(plan.layers.back().name, "loss");
  const LayerRow& first = plan.layers[1].op == "Gemm" ? plan.layers[1] : plan.layers[0];
  EXPECT_EQ(first.output.shape, (Shape{10, 12}));
  EXPECT_GT(first.flops_step, first.flops_forward);
  EXPECT_FALSE(plan.dump.empty());
  ASSERT_EQ(plan.warnings.size(), 1u);
  EXPECT_NE(plan.warnings[0].find("recipe.validation_split"), std::string::npos);
}

TEST(JobPlan, WarnsOfRowsThatAreLeftOut) {
  Recipe r = good_recipe();
  r.batch_size = 60;
  const JobPlan plan = plan_job(mlp(), r, digits_schema(100), PlanDump::kNone).value();
  EXPECT_EQ(plan.warnings[0],
            "each epoch leaves out 40 of 100 rows, which do not fill a batch of 60; different rows "
            "each time; recipe.drop_last: false trains on every row");
}

TEST(JobPlan, WarnsOfRowsThatEachBatchRepeats) {
  Recipe r = good_recipe();
  r.drop_last = false;
  const auto warning = [&](int64_t batch_size) {
    r.batch_size = batch_size;
    return plan_job(mlp(), r, digits_schema(100), PlanDump::kNone).value().warnings[0];
  };
  EXPECT_EQ(warning(350),
            "each batch of 350 has each of the 100 rows at least 3 times; a recipe.batch_size of "
            "100 computes them once");
  for (const int64_t batch_size : {60, 199}) {
    EXPECT_NE(warning(batch_size).find("recipe.validation_split"), std::string::npos)
        << "the only one";
  }
}

TEST(JobPlan, FindsTheLargestBatchThatFits) {
  Recipe r = good_recipe();
  r.batch_size = 90;
  const auto needs = [&](int64_t batch) {
    Recipe other = r;
    other.batch_size = batch;
    return bytes_on_cpu(plan_run(mlp(), other, digits_schema(100)).value());
  };
  const auto needs_in = [&](int64_t micro_batches) {
    Recipe other = r;
    other.accumulate_steps = micro_batches;
    return bytes_on_cpu(plan_run(mlp(), other, digits_schema(100)).value());
  };
  const FitAdvice small = advise_fit(mlp(), r, digits_schema(100), needs(37));
  EXPECT_GE(small.batch_size, 37);
  EXPECT_LE(needs(small.batch_size), needs(37));
  EXPECT_GT(needs(small.batch_size + 1), needs(37));
  EXPECT_EQ(small.accumulate_steps, 0) << "the loader makes whole batches";
  const int64_t limit = needs_in(3);
  ASSERT_GT(needs(90), limit);
  const FitAdvice advice = advise_fit(mlp(), r, digits_schema(100), limit);
  ASSERT_GT(advice.accumulate_steps, 1);
  EXPECT_LE(needs_in(advice.accumulate_steps), limit);
  EXPECT_GT(advice.batch_size, 37);
  EXPECT_EQ(advice.recompute, Recompute::kNone) << "nothing is kept that could be recomputed";
  EXPECT_EQ(describe(advice),
            "recipe.accumulate_steps: " + std::to_string(advice.accumulate_steps) +
                " or recipe.batch_size: " + std::to_string(advice.batch_size) + " would fit");
  EXPECT_EQ(advise_fit(mlp(), r, digits_schema(100), 1000).batch_size, 0);
}

// ---- find_fit() ----

LayerSpec layer_of(const char* op) {
  LayerSpec spec;
  spec.op = op;
  return spec;
}

/// Returns a model whose activations outweigh its parameters: 12 layers of 16 units.
ModelSpec deep_mlp() {
  ModelSpec model;
  for (int i = 0; i < 12; ++i) {
    model.layers.push_back(layer_of("Gemm"));
    model.layers.back().attributes.set("units", int64_t{16});
    model.layers.push_back(layer_of("Relu"));
  }
  model.layers.push_back(layer_of("Gemm"));
  return model;
}

Recipe large_batch() {
  Recipe recipe = good_recipe();
  recipe.batch_size = 96;
  return recipe;
}

int64_t bytes_of(const ModelSpec& model, const Recipe& recipe) {
  return bytes_on_cpu(plan_run(model, recipe, digits_schema(100)).value());
}
int64_t bytes_with(const ModelSpec& model, Recompute recompute, int64_t accumulate_steps) {
  Recipe changed = large_batch();
  changed.recompute = recompute;
  changed.accumulate_steps = accumulate_steps;
  return bytes_of(model, changed);
}

TEST(FindFit, ChangesNoFittingJobAndNoFixedField) {
  const int64_t whole = bytes_with(deep_mlp(), Recompute::kNone, 1);
  const auto find = [&](int64_t limit, FitFreedom free) {
    return find_fit(deep_mlp(), large_batch(), digits_schema(100), limit, free);
  };
  EXPECT_FALSE(find(whole, {true, true}).has_value());
  EXPECT_TRUE(find(whole - 1, {true, true}).has_value());
  EXPECT_FALSE(find(whole - 1, {false, false}).has_value());
  EXPECT_FALSE(find(1000, {true, true}).has_value()) << "less than the weights";
}

TEST(FindFit, UsesTheFewestMicroBatchesThatFit) {
  const int64_t limit = bytes_with(deep_mlp(), Recompute::kNone, 3);
  const std::optional<Fit> fit =
      find_fit(deep_mlp(), large_batch(), digits_schema(100), limit, {false, true});
  ASSERT_TRUE(fit.has_value());
  EXPECT_EQ(fit->recompute, Recompute::kNone);
  EXPECT_LE(bytes_on_cpu(fit->plan), limit);
  for (const int64_t fewer : {2, 3}) {
    if (fewer >= fit->accumulate_steps) continue;
    EXPECT_GT(bytes_with(deep_mlp(), Recompute::kNone, fewer), limit) << fewer;
  }
}

TEST(FindFit, RecomputesBeforeItSplitsAndDoesBothWhereNeitherSuffices) {
  const ModelSpec model = deep_mlp();
  const int64_t none = bytes_with(model, Recompute::kNone, 1);
  const int64_t blocks = bytes_with(model, Recompute::kBlocks, 1);
  const int64_t full = bytes_with(model, Recompute::kFull, 1);
  ASSERT_LT(std::min(blocks, full), none);
  const auto find = [&](int64_t limit) {
    return find_fit(model, large_batch(), digits_schema(100), limit, {true, true}).value();
  };
  const Fit first = find(none - 1);
  EXPECT_EQ(first.recompute, blocks < none ? Recompute::kBlocks : Recompute::kFull);
  EXPECT_EQ(first.accumulate_steps, 1);
  const int64_t least = bytes_with(model, Recompute::kFull, 96);
  const int64_t alone = bytes_with(model, Recompute::kNone, 96);
  if (least < std::min({alone, blocks, full})) {
    const Fit both = find(least);
    EXPECT_EQ(both.recompute, Recompute::kFull);
    EXPECT_GT(both.accumulate_steps, 1);
    EXPECT_LE(bytes_on_cpu(both.plan), least);
  }
}

TEST(FindFit, DoesNotSplitBatchesWhereThatChangesTheResult) {
  ModelSpec normalized = deep_mlp();
  normalized.layers.insert(normalized.layers.begin() + 1, layer_of("BatchNormalization"));
  ModelSpec weighted = deep_mlp();
  weighted.loss.op = "SoftmaxCrossEntropyLoss";
  weighted.loss.attributes.set("ignore_index", int64_t{2});
  for (const ModelSpec& model : {normalized, weighted}) {
    const int64_t limit = bytes_with(model, Recompute::kNone, 2);
    ASSERT_LT(limit, bytes_with(model, Recompute::kNone, 1));
    EXPECT_FALSE(
        find_fit(model, large_batch(), digits_schema(100), limit, {false, true}).has_value());
  }
}

// Planning is repeated until a stop request arrives during a plan.
TEST(PlanRun, StopsSoonOnRequest) {
  const auto layer = [](const char* op) {
    LayerSpec spec;
    spec.op = op;
    return spec;
  };
  BlockSpec block;
  block.name = "b";
  block.layers = {layer("Gemm"), layer("Relu")};
  block.layers[0].attributes.set("units", int64_t{64});
  ModelSpec deep;
  deep.blocks = {block};
  deep.layers = {layer("Use"), layer("Gemm")};
  deep.layers[0].block = "b";
  deep.layers[0].repeat = 4000;
  std::stop_source stop;
  const std::jthread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    stop.request_stop();
  });
  Result<RunPlan> plan = Error{};
  do {
    plan = plan_run(deep, good_recipe(), digits_schema(100), 1, {}, stop.get_token());
  } while (plan.ok());
  EXPECT_EQ(plan.error().code, ErrorCode::kCancelled);
  EXPECT_EQ(plan.error().reason, "STOPPED");
  const FitAdvice none = advise_fit(deep, good_recipe(), digits_schema(100), int64_t{1} << 40, 1,
                                    {}, stop.get_token());
  EXPECT_EQ(none.batch_size, 0);
}

TEST(Initialize, DependsOnSeedNameAndIndexAlone) {
  TensorInfo t;
  t.name = "fc1.weight";
  t.type = {{3, 5}, DType::kF32};
  t.role = Role::kParameter;
  t.initializer = {Initializer::Kind::kUniform, -0.5, 0.5};
  std::vector<float> a(15), b(20), c(15), d(15);
  initialize_tensor(t, 7, std::as_writable_bytes(std::span(a)));
  TensorInfo larger = t;
  larger.type.shape = {4, 5};
  initialize_tensor(larger, 7, std::as_writable_bytes(std::span(b)));
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i], b[i]);
    EXPECT_GE(a[i], -0.5f);
    EXPECT_LT(a[i], 0.5f);
  }
  initialize_tensor(t, 8, std::as_writable_bytes(std::span(c)));
  TensorInfo other = t;
  other.name = "fc2.weight";
  initialize_tensor(other, 7, std::as_writable_bytes(std::span(d)));
  EXPECT_NE(a, c);
  EXPECT_NE(a, d);
  EXPECT_EQ(a[4], static_cast<float>(-0.5 + math::uniform01<double>(math::philox_u32(
                                                7, stream_of("fc1.weight"), 0, 4))));
}

TEST(Initialize, NormalHasItsMeanAndDeviation) {
  TensorInfo t;
  t.name = "n";
  t.type = {{20000}, DType::kF64};
  t.initializer = {Initializer::Kind::kNormal, 2, 3};
  std::vector<double> v(20000);
  initialize_tensor(t, 1, std::as_writable_bytes(std::span(v)));
  const double mean = std::accumulate(v.begin(), v.end(), 0.0) / 20000;
  double square = 0;
  for (const double x : v) square += (x - mean) * (x - mean);
  EXPECT_NEAR(mean, 2, 0.1);
  EXPECT_NEAR(std::sqrt(square / 20000), 3, 0.1);
}

// 37 rows in batches of 16: the last batch has 5 rows and padding. Evaluating the rows one by one
// must give the same means.
TEST(Evaluate, PartialBatchesCountEachRowOnce) {
  constexpr int64_t kRows = 37;
  DatasetSchema schema = digits_schema(kRows);
  schema.image_dtype = DType::kF32;
  std::vector<float> pixels(kRows * 64);
  std::vector<int32_t> labels(kRows);
  for (size_t i = 0; i < pixels.size(); ++i) {
    pixels[i] = math::uniform01<float>(math::philox_u32(3, 1, 0, i));
  }
  for (size_t i = 0; i < labels.size(); ++i) {
    labels[i] = static_cast<int32_t>(math::philox_u32(3, 2, 0, i) % 3);
  }
  Partition partition;
  partition.rows = kRows;
  partition.image_f32 = pixels;
  partition.target_class = labels;
  Preprocessing preprocessing;
  preprocessing.image_mean = {0.5};
  preprocessing.image_std = {0.25};

  const auto backend = make_cpu_backend(1);
  const auto session_of = [&](int64_t evaluation_batch) {
    const ModelInterface interface = schema.interface();
    RunPrograms programs;
    programs.train = compile_training(mlp(), good_recipe(), interface, 10).value();
    const PersistentLayout layout = persistent_layout(programs.train.program);
    programs.evaluate =
        compile_inference(mlp(), interface, evaluation_batch, &layout, Precision::kFp32).value();
    auto session = std::make_unique<Session>(std::move(programs), *backend);
    session->initialize(4);
    return session;
  };
  std::vector<int64_t> rows(kRows);
  std::iota(rows.begin(), rows.end(), 0);
  const auto batched = session_of(16);
  const Objective objective = find_objective(mlp(), schema.interface()).value();
  const Evaluation e = Evaluator(*batched, schema, preprocessing, objective, {"loss", "accuracy"})
                           .evaluate(partition, rows);

  const auto single = session_of(1);
  double loss = 0;
  int64_t correct = 0;
  for (int64_t row = 0; row < kRows; ++row) {
    std::vector<float> input(64);
    for (size_t i = 0; i < 64; ++i) {
      input[i] = (pixels[static_cast<size_t>(row) * 64 + i] - 0.5f) / 0.25f;
    }
    single->evaluate(std::as_bytes(std::span(input)));
    const auto z = single->evaluation_output(0);
    double sum = 0;
    size_t best = 0;
    for (size_t k = 0; k < 3; ++k) {
      sum += std::exp(static_cast<double>(z[k]));
      if (z[k] > z[best]) best = k;
    }
    const auto label = static_cast<size_t>(labels[static_cast<size_t>(row)]);
    loss += std::log(sum) - static_cast<double>(z[label]);
    correct += best == label ? 1 : 0;
  }
  ASSERT_EQ(e.values.size(), 2u);
  EXPECT_NEAR(e.values[0].second, loss / kRows, 1e-6);
  EXPECT_DOUBLE_EQ(e.values[1].second, static_cast<double>(correct) / kRows);
}

TEST(Evaluate, CrossEntropyIsFiniteForHugeLogits) {
  const std::vector<float> z = {-3e4f, 3e4f, 0};
  EXPECT_NEAR(cross_entropy(z, 1), 0, 1e-12);
  EXPECT_NEAR(cross_entropy(z, 0), 6e4, 1e-6);
}

}  // namespace
}  // namespace trainyard
