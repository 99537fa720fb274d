// Tests of the parts of a recipe other than the optimizer, in whole runs on small data: each takes
// effect as documented, resumes to the last bit, and is refused by its field where it makes no
// sense.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "src/base/glob.h"
#include "src/checkpoint/safetensors.h"
#include "src/inference/predictor.h"
#include "src/job/recipe.h"
#include "src/job/reporter.h"
#include "src/job/train_job.h"
#include "src/planning/job_plan.h"
#include "src/planning/programs.h"
#include "src/planning/recipe_check.h"
#include "src/train/session.h"
#include "tests/engine/run_job.h"
#include "tests/engine/tested_backend.h"
#include "tests/engine/train_support.h"

namespace trainyard {
namespace {

using testing::bytes_of;
using testing::image_model;
using testing::make_dataset;
using testing::Recorder;
using testing::run_job;
using testing::Workspace;

TrainJob job_in(const Workspace& w, const std::string& name) {
  TrainJob job;
  job.model = image_model(/*dropout=*/0);
  job.recipe.epochs = 3;
  job.recipe.batch_size = 16;
  job.recipe.optimizer = default_optimizer("adam");
  job.recipe.optimizer.learning_rate = 0.01;
  job.recipe.seed = 5;
  job.recipe.validation_split = 0.2;
  job.dataset = w / "dataset";
  job.checkpoints = w / (name + "-checkpoints");
  job.model_output = w / (name + "-model");
  return job;
}

std::string weights_of(const TrainJob& job) {
  return bytes_of(job.model_output / "model.safetensors");
}

std::map<std::string, std::vector<float>> tensors_of(const TrainJob& job) {
  const auto file = SafetensorsFile::open(job.model_output / "model.safetensors").value();
  std::map<std::string, std::vector<float>> tensors;
  for (const TensorView& t : file.tensors()) {
    std::vector<float>& values = tensors[t.name];
    values.resize(t.bytes.size() / sizeof(float));
    std::memcpy(values.data(), t.bytes.data(), t.bytes.size());
  }
  return tensors;
}

/// Runs the job once without a stop, and again in two parts: stopped at the first checkpoint, which
/// is in the middle of an epoch, and resumed.
void expect_resumes_to_the_same_bits(const Workspace& w, const TrainJob& job) {
  const auto named = [&](const std::string& name) {
    TrainJob copy = job;
    copy.checkpoints = w / (name + "-checkpoints");
    copy.model_output = w / (name + "-model");
    copy.recipe.checkpoint_every_steps = 7;
    return copy;
  };
  const TrainJob whole = named("whole"), parts = named("parts");
  Recorder rw, first, second;
  const auto undisturbed = run_job(whole, rw);
  ASSERT_TRUE(undisturbed.ok()) << undisturbed.error().message;
  std::stop_source stop;
  first.stop_step = 7;
  first.stop = &stop;
  ASSERT_EQ(run_job(parts, first, stop.get_token()).error().reason, "STOPPED");
  const auto resumed = run_job(parts, second);
  ASSERT_TRUE(resumed.ok()) << resumed.error().message;
  EXPECT_EQ(second.plan.first_step, 7);
  EXPECT_EQ(resumed->steps_done, undisturbed->steps_done);
  EXPECT_EQ(weights_of(parts), weights_of(whole));
  EXPECT_EQ(bytes_of(parts.model_output / "model.json"),
            bytes_of(whole.model_output / "model.json"));
}

TEST(Recipe, EveryOptimizerLearnsAndResumes) {
  for (const std::string& type : optimizer_types()) {
    SCOPED_TRACE(type);
    const Workspace w;
    make_dataset(w, true, 100);
    TrainJob job = job_in(w, "a");
    job.recipe.optimizer = default_optimizer(type);
    job.recipe.optimizer.learning_rate = type == "sgd" || type == "adafactor" ? 0.05 : 0.005;
    Recorder r;
    const auto result = run_job(job, r);
    ASSERT_TRUE(result.ok()) << result.error().message;
    EXPECT_LT(r.series["train/loss"][15], r.series["train/loss"][1]);
    EXPECT_EQ(result->arena_planned_bytes, result->arena_used_bytes);
    EXPECT_EQ(result->arena_planned_bytes, r.plan.memory.total());
    expect_resumes_to_the_same_bits(w, job);
  }
}

TEST(Recipe, AccumulationGivesTheLargeBatchsResult) {
  const Workspace w;
  make_dataset(w, false, 100, 20);
  TrainJob large = job_in(w, "large");
  large.model = {};
  large.model.preset = "mlp";
  large.recipe.clip_norm = 1;
  TrainJob small = large;
  small.recipe.accumulate_steps = 4;
  small.checkpoints = w / "small-checkpoints";
  small.model_output = w / "small-model";
  Recorder rl, rs;
  ASSERT_TRUE(run_job(large, rl).ok());
  const auto result = run_job(small, rs);
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(result->steps_done, 15);
  EXPECT_EQ(result->arena_planned_bytes, rs.plan.memory.total());
  for (const auto& [step, loss] : rl.series["train/loss"]) {
    EXPECT_NEAR(rs.series["train/loss"][step], loss, 1e-4 * loss) << step;
    EXPECT_NEAR(rs.series["train/gradient_norm"][step], rl.series["train/gradient_norm"][step],
                1e-4);
  }
  EXPECT_NEAR(rs.series["test/mae"][15], rl.series["test/mae"][15], 1e-5);
}

// Both micro-batches contain the same rows, so that only dropout makes them differ.
TEST(Recipe, EachMicroBatchDropsDifferentUnits) {
  constexpr int64_t kRows = 4, kFeatures = 8;
  const auto backend = testing::make_tested_backend(1);
  const ModelInterface interface { {kFeatures}, 0, TargetForm::kClass, 3 };
  Recipe recipe;
  recipe.steps = 1;
  recipe.batch_size = 2 * kRows;
  recipe.accumulate_steps = 2;
  std::vector<float> rows(2 * kRows * kFeatures);
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i] = static_cast<float>(i % (kRows * kFeatures)) / (kRows * kFeatures);
  }
  const std::vector<int32_t> labels(2 * kRows, 1);
  for (const double ratio : {0.0, 0.5}) {
    ModelSpec model;
    model.layers = {{"", "Gemm", {}, {{"units", int64_t{64}}}}};
    if (ratio > 0) model.layers.push_back({"", "Dropout", {}, {{"ratio", ratio}}});
    model.layers.push_back({"", "Gemm", {}, {}});
    Session session(compile_step(model, recipe, interface).value(), *backend, 2);
    session.initialize(1);
    const std::span<const float> scores =
        session
            .run_step({std::as_bytes(std::span(rows)), std::as_bytes(std::span(labels)), 0, 0.1F})
            .logits;
    ASSERT_EQ(scores.size(), 2 * kRows * 3u);
    const bool alike = std::ranges::equal(scores.first(kRows * 3), scores.last(kRows * 3));
    EXPECT_EQ(alike, ratio == 0) << ratio;
  }
}

void expect_accumulation_clipping_and_average_resume(Precision precision) {
  const Workspace w;
  make_dataset(w, true, 100, 20);
  TrainJob job = job_in(w, "a");
  job.model = image_model();  // has dropout and running statistics
  job.recipe.accumulate_steps = 2;
  job.recipe.clip_norm = 0.5;
  job.recipe.ema_decay = 0.8;
  job.recipe.parameter_groups = {{.match = "conv1.*", .learning_rate_factor = 0.1}};
  job.recipe.precision = precision;
  expect_resumes_to_the_same_bits(w, job);
}

TEST(Recipe, AccumulationClippingAndAverageResumeTogether) {
  expect_accumulation_clipping_and_average_resume(Precision::kFp32);
}
TEST(Recipe, AccumulationClippingAndAverageResumeTogetherInBf16) {
  expect_accumulation_clipping_and_average_resume(Precision::kBf16);
}
TEST(Recipe, AccumulationClippingAndAverageResumeTogetherInFp16) {
  expect_accumulation_clipping_and_average_resume(Precision::kFp16);
}

TEST(Recipe, AugmentationChangesTheRunAndResumesToTheSameBits) {
  const Workspace w;
  make_dataset(w, true, 100, 20);
  TrainJob job = job_in(w, "a");
  Recorder plain;
  ASSERT_TRUE(run_job(job, plain).ok());
  const std::string weights = weights_of(job);
  job.recipe.augmentation = {{"random_crop", {{"padding", int64_t{1}}}},
                             {"random_horizontal_flip"},
                             {"random_rotation", {{"degrees", 10.0}}},
                             {"color_jitter", {{"brightness", 0.2}, {"contrast", 0.2}}},
                             {"cutout", {{"size", int64_t{2}}}}};
  job.checkpoints = w / "b-checkpoints";
  job.model_output = w / "b-model";
  Recorder augmented;
  ASSERT_TRUE(run_job(job, augmented).ok());
  EXPECT_NE(weights_of(job), weights);
  EXPECT_NE(augmented.series["train/loss"][1], plain.series["train/loss"][1]);
  expect_resumes_to_the_same_bits(w, job);
}

TEST(Recipe, MixedImagesChangeTheRunAndResumeToTheSameBits) {
  const Workspace w;
  make_dataset(w, true, 100, 20);
  TrainJob job = job_in(w, "a");
  Recorder plain, mixed;
  ASSERT_TRUE(run_job(job, plain).ok());
  job.recipe.augmentation = {
      {"random_crop", {{"padding", int64_t{1}}}}, {"mixup"}, {"cutmix", {{"alpha", 0.5}}}};
  job.checkpoints = w / "b-checkpoints";
  job.model_output = w / "b-model";
  const auto result = run_job(job, mixed);
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(result->arena_planned_bytes, mixed.plan.memory.total());
  EXPECT_NE(mixed.series["train/loss"][1], plain.series["train/loss"][1]);
  EXPECT_LT(mixed.series["val/loss"][15], mixed.series["val/loss"][5]) << "by labels, as ever";
  job.recipe.accumulate_steps = 2;
  expect_resumes_to_the_same_bits(w, job);
  job.recipe.precision = Precision::kBf16;
  job.checkpoints = w / "c-checkpoints";
  job.model_output = w / "c-model";
  Recorder narrow;
  ASSERT_TRUE(run_job(job, narrow).ok());
  EXPECT_NEAR(narrow.series["train/loss"][15], mixed.series["train/loss"][15], 0.1);
}

TEST(Recipe, AverageIsEvaluatedAndExported) {
  const Workspace w;
  make_dataset(w, true, 100, 30);
  TrainJob raw = job_in(w, "raw");
  TrainJob averaged = job_in(w, "averaged");
  averaged.recipe.ema_decay = 0.9;
  Recorder rr, ra;
  ASSERT_TRUE(run_job(raw, rr).ok());
  const auto result = run_job(averaged, ra);
  ASSERT_TRUE(result.ok()) << result.error().message;
  // training does not depend on the average
  EXPECT_EQ(rr.series["train/loss"], ra.series["train/loss"]);
  EXPECT_NE(rr.series["val/loss"], ra.series["val/loss"]);
  EXPECT_NE(weights_of(raw), weights_of(averaged));
  EXPECT_EQ(result->arena_planned_bytes, ra.plan.memory.total());
  const auto backend = testing::make_tested_backend(1);
  const auto predictor = Predictor::open(averaged.model_output, *backend).value();
  const std::string csv = bytes_of(w / "test.csv");
  const RawRows rows = parse_raw_rows(predictor->schema(), "csv", csv).value();
  const auto predictions = predictor->predict(rows);
  const Dataset data = Dataset::open(averaged.dataset, true).value();
  int64_t correct = 0;
  for (size_t i = 0; i < predictions.size(); ++i) {
    correct += predictions[i].label == data.test().target_class[i] ? 1 : 0;
  }
  EXPECT_EQ(static_cast<double>(correct) / 30, ra.series["test/accuracy"][15]);
}

TEST(Recipe, FrozenParametersKeepTheirBits) {
  const Workspace w;
  make_dataset(w, true, 100);
  TrainJob start = job_in(w, "start");
  start.recipe.epochs = 0;
  start.recipe.steps = 1;
  start.recipe.parameter_groups = {{.match = "conv1.*", .freeze = true},
                                   {.match = "gemm1.weight", .freeze = true}};
  TrainJob longer = start;
  longer.recipe.steps = 9;
  longer.checkpoints = w / "longer-checkpoints";
  longer.model_output = w / "longer-model";
  Recorder a, b;
  ASSERT_TRUE(run_job(start, a).ok());
  ASSERT_TRUE(run_job(longer, b).ok());
  const auto one = tensors_of(start), nine = tensors_of(longer);
  for (const auto& [name, values] : one) {
    const bool frozen = name.starts_with("conv1.") || name == "gemm1.weight";
    EXPECT_EQ(nine.at(name) == values, frozen) << name;
  }
}

TEST(Recipe, KeepsTheModelOfTheBestEvaluation) {
  const Workspace w;
  make_dataset(w, true, 100, 30);
  TrainJob job = job_in(w, "a");
  job.recipe.evaluate_every_steps = 1;
  job.recipe.optimizer.learning_rate = 0.05;
  job.recipe.keep_best = {"val/loss", "max"};  // the worst evaluation, which is surely not the last
  job.recipe.metrics = {"confusion_matrix"};
  Recorder r;
  const auto result = run_job(job, r);
  ASSERT_TRUE(result.ok()) << result.error().message;
  std::map<std::string, MetricPoint> finals;
  for (const MetricPoint& m : result->final_metrics) finals[m.key] = m;
  int64_t worst = 1;
  for (const auto& [step, loss] : r.series["val/loss"]) {
    if (loss > r.series["val/loss"][worst]) worst = step;
  }
  EXPECT_EQ(finals["val/loss"].step, worst);
  EXPECT_EQ(finals["val/loss"].value, r.series["val/loss"][worst]);
  const auto json = nlohmann::json::parse(bytes_of(job.model_output / "model.json"));
  EXPECT_EQ(json["best"]["step"], worst);
  EXPECT_EQ(json["best"]["metric"], "val/loss");
  EXPECT_EQ(json["confusion_matrix"]["test"].size(), 3u);
  const auto logged = [&](const std::string& text) {
    return std::ranges::any_of(r.lines, [&](const auto& l) { return l.find(text) != l.npos; });
  };
  EXPECT_TRUE(logged("the model has the weights of step " + std::to_string(worst)));
  EXPECT_TRUE(logged("test confusion matrix"));
  expect_resumes_to_the_same_bits(w, job);
}

// The ROC AUC of a single row is NaN.
TEST(Recipe, NaNIsNeverTheBest) {
  const Workspace w;
  make_dataset(w, true, 100);
  TrainJob job = job_in(w, "a");
  job.recipe.validation_split = 0.01;
  job.recipe.metrics = {"roc_auc"};
  job.recipe.keep_best = {"val/roc_auc", ""};
  Recorder r;
  const auto result = run_job(job, r);
  ASSERT_TRUE(result.ok()) << result.error().message;
  ASSERT_FALSE(r.series["val/roc_auc"].empty());
  for (const auto& [step, area] : r.series["val/roc_auc"]) EXPECT_TRUE(std::isnan(area)) << step;
  EXPECT_EQ(r.line_with("the model has the weights of step"), "");
}

TEST(Recipe, StopsEarlyAndStaysStopped) {
  const Workspace w;
  make_dataset(w, true, 100, 30);
  TrainJob job = job_in(w, "a");
  job.recipe.epochs = 50;
  job.recipe.evaluate_every_steps = 5;
  // No evaluation improves by 10, so the first one stays the best.
  job.recipe.early_stopping = {"val/loss", 3, 10, ""};
  Recorder r, again;
  const auto result = run_job(job, r);
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(result->steps_done, 20);
  EXPECT_EQ(r.series["val/loss"].size(), 4u);
  EXPECT_NE(r.line_with("stopped early after step 20 of 250"), "");
  const std::string weights = weights_of(job);
  const auto second = run_job(job, again);  // simulates a process killed before its report
  ASSERT_TRUE(second.ok()) << second.error().message;
  EXPECT_EQ(second->steps_done, 20);
  EXPECT_TRUE(again.series["train/loss"].empty());
  EXPECT_EQ(again.line_with("stopped early"), r.line_with("stopped early"));
  EXPECT_EQ(weights_of(job), weights);
  expect_resumes_to_the_same_bits(w, job);
}

TEST(Recipe, BeginsWithAnotherJobsWeights) {
  const Workspace w;
  make_dataset(w, true, 100, 30);
  const TrainJob source = job_in(w, "source");
  Recorder r;
  ASSERT_TRUE(run_job(source, r).ok());
  TrainJob job = job_in(w, "next");
  job.recipe.seed = 77;
  job.recipe.initial_weights = {.source = "source", .include = {}, .exclude = {"gemm2.*"}};
  job.initial_weights = source.model_output / "model.safetensors";
  job.recipe.epochs = 0;
  job.recipe.steps = 1;
  job.recipe.optimizer.learning_rate = 1e-9;  // hardly changes the weights
  Recorder rn;
  const auto result = run_job(job, rn);
  ASSERT_TRUE(result.ok()) << result.error().message;
  const std::string taken = rn.line_with("initial weights from source");
  EXPECT_NE(taken.find("2 left out by the recipe: gemm2.weight, gemm2.bias"), std::string::npos)
      << taken;
  const auto old = tensors_of(source), fresh = tensors_of(job);
  EXPECT_NEAR(fresh.at("gemm1.weight")[3], old.at("gemm1.weight")[3], 1e-7);
  EXPECT_GT(std::fabs(fresh.at("gemm2.weight")[3] - old.at("gemm2.weight")[3]), 1e-4);

  TrainJob other = job_in(w, "other");
  other.model.layers[4].attributes.set("units", int64_t{17});
  other.recipe.initial_weights = {.source = "source"};
  other.initial_weights = job.initial_weights;
  const auto refused = run_job(other, rn);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().reason, "INITIAL_WEIGHTS_MISMATCH");
  EXPECT_NE(refused.error().message.find("gemm1.weight [16, 96] where [17, 96] is needed"),
            std::string::npos)
      << refused.error().message;
  other.recipe.initial_weights.skip_mismatched = true;
  Recorder ro;
  ASSERT_TRUE(run_job(other, ro).ok());
  EXPECT_NE(ro.line_with("of another shape, drawn at random"), "");

  TrainJob typo = job_in(w, "typo");
  typo.recipe.initial_weights = {.source = "source", .include = {"convv1.*"}};
  typo.initial_weights = job.initial_weights;
  const auto unmatched = run_job(typo, rn);
  ASSERT_FALSE(unmatched.ok());
  EXPECT_NE(unmatched.error().message.find("recipe.initial_weights.include[0]: 'convv1.*' matches "
                                           "no parameter"),
            std::string::npos)
      << unmatched.error().message;
  typo.initial_weights = "";  // the model was deleted
  EXPECT_EQ(run_job(typo, rn).error().reason, "INITIAL_WEIGHTS_UNREADABLE");
  typo.initial_weights = w / "away";  // a missing file may come back, unlike a deleted model
  EXPECT_EQ(run_job(typo, rn).error().reason, "FILE_NOT_FOUND");
  std::filesystem::create_symlink(typo.initial_weights, typo.initial_weights);
  EXPECT_EQ(run_job(typo, rn).error().reason, "STORAGE_ERROR");
}

struct BadRecipe {
  std::function<void(Recipe&)> change;
  std::string message;  // the beginning of the error message
};

TEST(Recipe, RefusalsNameTheFieldAndWhatIsAccepted) {
  const Workspace w;
  make_dataset(w, true, 100);
  const DatasetSchema schema = read_schema(w / "dataset").value();
  const TrainJob job = job_in(w, "a");
  const double nan = std::nan("");
  const std::vector<BadRecipe> bad = {
      {[](Recipe& r) { r.accumulate_steps = 3; },
       "recipe.accumulate_steps: 3 does not divide recipe.batch_size 16, expected one of 1, 2, 4, "
       "8, 16"},
      {[](Recipe& r) { r.accumulate_steps = 0; }, "recipe.accumulate_steps: 0 is out of range"},
      {[&](Recipe& r) { r.clip_norm = nan; }, "recipe.clip_gradients.norm: nan is out of range"},
      {[](Recipe& r) { r.clip_value = -1; }, "recipe.clip_gradients.value: -1 is out of range"},
      {[](Recipe& r) { r.clip_norm = r.clip_value = 1; },
       "recipe.clip_gradients: has both norm and value"},
      {[](Recipe& r) { r.ema_decay = 1; }, "recipe.ema.decay: 1 is out of range"},
      {[](Recipe& r) { r.parameter_groups = {{.match = "conv*", .learning_rate_factor = -1.0}}; },
       "recipe.parameter_groups[0].learning_rate_factor: -1 is out of range"},
      {[](Recipe& r) { r.parameter_groups = {{.match = "conv*"}}; },
       "recipe.parameter_groups[0].freeze: expected one of"},
      {[](Recipe& r) {
         r.parameter_groups = {{.match = "*", .freeze = true, .weight_decay = 0.0}};
       },
       "recipe.parameter_groups[0].freeze: makes"},
      {[](Recipe& r) { r.parameter_groups = {{.match = "gem1.weight", .freeze = true}}; },
       "recipe.parameter_groups[0].match: 'gem1.weight' matches no parameter; did you mean "
       "'gemm1.weight'?"},
      {[](Recipe& r) { r.parameter_groups = {{.match = "*", .freeze = true}}; },
       "recipe.parameter_groups: freezes every parameter"},
      {[](Recipe& r) { r.normalize = "imagnet"; },
       "recipe.normalize: 'imagnet' is not known, expected one of dataset, imagenet"},
      {[](Recipe& r) { r.normalize = "imagenet"; }, "recipe.normalize: imagenet needs"},
      {[](Recipe& r) { r.metrics = {"f1_makro"}; },
       "recipe.metrics[0]: 'f1_makro' is not a metric of this target"},
      {[](Recipe& r) { r.metrics = {"rmse"}; },
       "recipe.metrics[0]: 'rmse' is not a metric of this target"},
      {[](Recipe& r) { r.metrics = {"top_3_accuracy"}; },
       "recipe.metrics[0]: 'top_3_accuracy' of 3 classes is always 1"},
      {[](Recipe& r) { r.keep_best.metric = "val/roc_auc"; },
       "recipe.keep_best.metric: 'val/roc_auc' is not reported by this job"},
      {[](Recipe& r) {
         r.keep_best.metric = "val/loss";
         r.validation_split = 0;
       },
       "recipe.keep_best.metric: needs validation rows"},
      {[](Recipe& r) {
         r.early_stopping = {"val/loss", 0, 0, ""};
       },
       "recipe.early_stopping.patience: 0 is out of range"},
      {[&](Recipe& r) {
         r.early_stopping = {"val/loss", 1, nan, ""};
       },
       "recipe.early_stopping.min_delta: is out of range"},
      {[](Recipe& r) {
         r.early_stopping = {"val/loss", 1, 0, "up"};
       },
       "recipe.early_stopping.mode: 'up' is not known"},
      {[](Recipe& r) { r.augmentation = {{"flip"}}; },
       "recipe.augmentation[0]: 'flip' is not known, expected random_horizontal_flip, "},
      {[](Recipe& r) { r.augmentation = {{"cutout"}}; },
       "recipe.augmentation[0].cutout: size: is required"},
      {[](Recipe& r) {
         r.augmentation = {{"random_crop", {{"padding", int64_t{9}}}}};
       },
       "recipe.augmentation[0].random_crop.padding: 9 is more than the images' 8 pixels, expected "
       "1..8"},
      {[](Recipe& r) {
         r.augmentation = {{"random_resized_crop", {{"scale", std::vector<double>{0.9, 0.1}}}}};
       },
       "recipe.augmentation[0].random_resized_crop.scale: its first number is larger"},
      {[](Recipe& r) { r.augmentation = {{"color_jitter"}}; },
       "recipe.augmentation[0].color_jitter: is empty"},
      {[](Recipe& r) {
         r.augmentation = {{"color_jitter", {{"hue", 0.1}}}};
       },
       "recipe.augmentation[0].color_jitter.hue: is for images of 3 channels; the dataset's have "
       "1"},
      {[](Recipe& r) { r.augmentation.resize(17, {"random_horizontal_flip"}); },
       "recipe.augmentation: has 17 entries, expected at most 16"},
      {[](Recipe& r) {
         r.augmentation = {{"mixup", {{"alpha", 0.0}}}};
       },
       "recipe.augmentation[0].mixup: alpha: 0"},
      {[](Recipe& r) {
         r.augmentation = {{"cutmix"}, {"random_vertical_flip"}};
       },
       "recipe.augmentation[1].random_vertical_flip: comes after cutmix, expected before it"},
      {[](Recipe& r) {
         r.augmentation = {{"mixup"}, {"cutmix"}, {"mixup"}};
       },
       "recipe.augmentation[2].mixup: is listed twice, expected once"},
      {[](Recipe& r) {
         r.augmentation = {{"mixup"}};
         r.batch_size = 1;
       },
       "recipe.augmentation[0].mixup: mixes the images of a batch, but recipe.batch_size is 1"},
      {[](Recipe& r) { r.optimizer.alpha = 0.5; }, "recipe.optimizer.alpha: has no effect here"},
      {[](Recipe& r) { r.optimizer.weight_decay_on = "some"; },
       "recipe.optimizer.weight_decay_on: 'some' is not known"},
      {[](Recipe& r) {
         r.optimizer = default_optimizer("adafactor");
         r.optimizer.beta2_decay = 0.5;
       },
       "recipe.optimizer.beta2_decay: 0.5 is out of range"},
      {[](Recipe& r) {
         r.optimizer = default_optimizer("muon");
         r.optimizer.newton_schulz_steps = 0;
       },
       "recipe.optimizer.newton_schulz_steps: 0 is out of range"},
      {[](Recipe& r) { r.schedule.type = "multi_step"; }, "recipe.schedule.milestones: is empty"},
      {[](Recipe& r) {
         r.schedule.type = "multi_step";
         r.schedule.milestones = {5, 5};
       },
       "recipe.schedule.milestones: 5 is out of range, expected ascending"},
      {[](Recipe& r) {
         r.schedule.type = "one_cycle";
         r.schedule.pct_start = 1.5;
       },
       "recipe.schedule.pct_start: 1.5 is out of range"},
      {[](Recipe& r) {
         r.schedule.type = "polynomial";
         r.schedule.power = 0;
       },
       "recipe.schedule.power: 0 is out of range"},
  };
  for (const BadRecipe& b : bad) {
    Recipe recipe = job.recipe;
    b.change(recipe);
    const auto plan = plan_run(job.model, recipe, schema);
    ASSERT_FALSE(plan.ok()) << b.message;
    EXPECT_TRUE(plan.error().message.starts_with(b.message)) << plan.error().message;
    EXPECT_EQ(plan.error().code, ErrorCode::kInvalidArgument);
  }
}

TEST(Glob, StarsAndQuestionMarks) {
  for (const auto& [pattern, text] :
       std::vector<std::pair<const char*, const char*>>{{"", ""},
                                                        {"*", ""},
                                                        {"a*", "abc"},
                                                        {"*.bias", "fc1.bias"},
                                                        {"fc?.*", "fc1.weight"},
                                                        {"*a*b*c", "xxaxbxbc"},
                                                        {"**", "x"}}) {
    EXPECT_TRUE(glob_match(pattern, text)) << pattern << " " << text;
  }
  for (const auto& [pattern, text] :
       std::vector<std::pair<const char*, const char*>>{{"", "a"},
                                                        {"a", ""},
                                                        {"fc?.*", "fc10.weight"},
                                                        {"*.bias", "fc1.biased"},
                                                        {"a*b", "abc"}}) {
    EXPECT_FALSE(glob_match(pattern, text)) << pattern << " " << text;
  }
}

}  // namespace
}  // namespace trainyard
