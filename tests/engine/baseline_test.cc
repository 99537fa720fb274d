// The tests catch a model that is no better than the baseline, or that diverged, without a warning;
// a warning about a good model; baselines computed from other rows.
#include "src/train/baseline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>

#include "src/data/load/loader.h"
#include "src/job/recipe.h"
#include "src/job/reporter.h"
#include "src/job/run_plan.h"
#include "src/job/train_job.h"
#include "src/planning/run_warnings.h"
#include "src/train/trainer.h"
#include "tests/engine/tested_backend.h"
#include "tests/engine/train_support.h"

namespace trainyard {
namespace {

using testing::image_model;
using testing::make_dataset;
using testing::Recorder;
using testing::Workspace;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TrainJob job_in(const Workspace& w, const std::string& name) {
  TrainJob job;
  job.recipe.epochs = 6;
  job.recipe.batch_size = 16;
  job.recipe.optimizer.type = "adam";
  job.recipe.optimizer.learning_rate = 0.01;
  job.recipe.validation_split = 0.25;
  job.dataset = w / "dataset";
  job.checkpoints = w / (name + "-checkpoints");
  job.model_output = w / (name + "-model");
  return job;
}

ModelSpec linear_model() {
  ModelSpec spec;
  spec.layers = {{"", "Gemm", {}, {}}};
  return spec;
}

TrainResult run_to_the_end(const TrainJob& job, Recorder& recorder, std::stop_token stop = {}) {
  const auto backend = testing::make_tested_backend(job.threads);
  auto result = train(job, *backend, local_files(), recorder, std::move(stop));
  EXPECT_TRUE(result.ok()) << result.error().message;
  return result.ok() ? std::move(*result) : TrainResult{};
}
TrainResult run_to_the_end(const TrainJob& job) {
  Recorder recorder;
  return run_to_the_end(job, recorder);
}

std::map<std::string, double> by_key(const std::vector<MetricPoint>& points) {
  std::map<std::string, double> map;
  for (const MetricPoint& p : points) map[p.key] = p.value;
  return map;
}

TEST(Baseline, OfClassesIsTheLargestOfTheTrainingRows) {
  const Workspace w;
  make_dataset(w, true, 200, 40);
  TrainJob job = job_in(w, "classes");
  job.model = image_model(0);
  const TrainResult result = run_to_the_end(job);
  EXPECT_TRUE(result.warnings.empty()) << result.warnings[0];

  const Dataset data = Dataset::open(job.dataset, false).value();
  const Split split = split_dataset(data.schema(), data.train(), 0, job.recipe.split_rule());
  std::vector<double> counts(3);
  for (const int64_t row : split.train) {
    ++counts[static_cast<size_t>(data.train().target_class[static_cast<size_t>(row)])];
  }
  const auto largest = std::ranges::max_element(counts) - counts.begin();
  double right = 0, loss = 0;
  for (const int64_t row : split.validation) {
    const int32_t label = data.train().target_class[static_cast<size_t>(row)];
    right += label == largest ? 1 : 0;
    loss -= std::log(counts[static_cast<size_t>(label)] / 150);
  }
  const auto baselines = by_key(result.baselines);
  EXPECT_DOUBLE_EQ(baselines.at("val/accuracy"), right / 50);
  EXPECT_NEAR(baselines.at("val/loss"), loss / 50, 1e-6);
  EXPECT_TRUE(baselines.contains("test/accuracy"));
  const auto final = by_key(result.final_metrics);
  for (const auto& [key, value] : baselines) EXPECT_TRUE(final.contains(key)) << key;
  EXPECT_GT(final.at("val/accuracy"), baselines.at("val/accuracy"));
}

TEST(Baseline, OfNumbersIsTheMean) {
  const Workspace w;
  make_dataset(w, false, 200);
  TrainJob job = job_in(w, "numbers");
  job.model = linear_model();
  const TrainResult result = run_to_the_end(job);
  EXPECT_TRUE(result.warnings.empty()) << result.warnings[0];
  const auto baselines = by_key(result.baselines);
  EXPECT_NEAR(baselines.at("val/r2"), 0, 0.1);  // the mean is that of the training rows
  EXPECT_LE(baselines.at("val/r2"), 0);
  EXPECT_NEAR(baselines.at("val/loss"), 1, 0.5);
  EXPECT_LT(by_key(result.final_metrics).at("val/rmse"), baselines.at("val/rmse"));
}

TEST(Baseline, WarnsOfAModelThatLearnedNothing) {
  const Workspace w;
  make_dataset(w, false, 200);
  TrainJob job = job_in(w, "nothing");
  job.model = linear_model();
  job.recipe.optimizer.learning_rate = 1e-12;
  Recorder recorder;
  const TrainResult result = run_to_the_end(job, recorder);
  ASSERT_EQ(result.warnings.size(), 1u);
  EXPECT_TRUE(result.warnings[0].starts_with(
      "the model is no better than a constant prediction that ignores the inputs: val/rmse "))
      << result.warnings[0];
  EXPECT_EQ(recorder.line_with("no better"), result.warnings[0]);
}

TEST(Baseline, WarnsOfDivergenceAlsoAfterAResume) {
  const Workspace w;
  make_dataset(w, false, 200);
  TrainJob job = job_in(w, "diverged");
  job.model = linear_model();
  job.recipe.epochs = 0;
  job.recipe.steps = 4;
  job.recipe.optimizer = OptimizerSpec();
  job.recipe.optimizer.type = "sgd";
  job.recipe.optimizer.learning_rate = 1000;
  job.recipe.checkpoint_every_steps = 2;
  const TrainResult whole = run_to_the_end(job);
  ASSERT_EQ(whole.warnings.size(), 2u) << "and it is worse than the mean";
  EXPECT_NE(whole.warnings[0].find("far above the "), std::string::npos) << whole.warnings[0];
  EXPECT_NE(whole.warnings[0].find("(currently 1000)"), std::string::npos);

  job.checkpoints = w / "again";
  Recorder recorder;
  std::stop_source stop;
  recorder.stop_step = 2;
  recorder.stop = &stop;
  const auto backend = testing::make_tested_backend(job.threads);
  const auto stopped = train(job, *backend, local_files(), recorder, stop.get_token());
  ASSERT_FALSE(stopped.ok());
  const TrainResult resumed = run_to_the_end(job);
  ASSERT_EQ(resumed.warnings.size(), 2u);
  const auto first_step = [](const std::string& warning) {
    const size_t begin = warning.find("above the ");
    return warning.substr(begin, warning.find(" of the first") - begin);
  };
  EXPECT_EQ(first_step(resumed.warnings[0]), first_step(whole.warnings[0]));
}

TEST(Baseline, ComparesLossAndAccuracy) {
  Objective objective;
  objective.loss = find_loss_kind("SoftmaxCrossEntropyLoss");
  ASSERT_NE(objective.loss, nullptr);
  objective.interface.target = TargetForm::kClass;
  objective.interface.outputs = 2;
  const std::vector<int32_t> labels = {1, 1, 1, 0};
  const std::vector<int64_t> rows = {0, 1, 2, 3};
  Partition train;
  train.rows = 4;
  train.target_class = labels;
  const auto baseline = Baseline::of(objective, train, rows);
  ASSERT_TRUE(baseline.has_value());
  const Evaluation without = baseline->evaluate(train, rows, {}, {"loss", "accuracy"});
  EXPECT_DOUBLE_EQ(without.values[1].second, 0.75);
  EXPECT_NEAR(without.values[0].second, -(3 * std::log(0.75) + std::log(0.25)) / 4, 1e-6);
  const TargetSchema target{TargetSchema::Kind::kClass, "y", {"no", "yes"}};
  const auto reported = [&](double loss, double accuracy) {
    return baseline->compare("val", {{{"loss", loss}, {"accuracy", accuracy}}, {}}, without, target)
        .has_value();
  };
  EXPECT_TRUE(reported(0.6, 0.75));
  EXPECT_TRUE(reported(0.6, 0.5));
  EXPECT_FALSE(reported(0.5, 0.75)) << "its probabilities are better";
  EXPECT_FALSE(reported(0.9, 0.8)) << "its answers are better";
  EXPECT_TRUE(reported(std::nan(""), 0.75));
  EXPECT_TRUE(reported(kInfinity, 0.75));
  EXPECT_NE(baseline->compare("val", {{{"loss", 1}, {"accuracy", 0.75}}, {}}, without, target)
                ->find("largest class, 'yes'"),
            std::string::npos);
}

TEST(Baseline, DivergenceIsFarAboveTheBeginning) {
  EXPECT_TRUE(check_divergence(1, {11, 12}, 0.1).has_value());
  EXPECT_FALSE(check_divergence(1, {9, 10}, 0.1).has_value());
  EXPECT_FALSE(check_divergence(0.001, {0.5}, 0.1).has_value()) << "small losses vary";
  EXPECT_FALSE(check_divergence(1, {0.1, 0.1, 0.1, 30}, 0.1).has_value()) << "one bad batch";
  EXPECT_FALSE(check_divergence(1, {}, 0.1).has_value());
}

TEST(RunWarnings, ValidationRowsThatAreCopies) {
  const Workspace w;
  for (const bool copies : {true, false}) {
    std::filesystem::remove_all(w / "dataset");
    std::ofstream out(w / "rows.csv");
    out << "a,b,y\n";
    for (int i = 0; i < 200; ++i) {
      const int row = copies ? i % 100 : i;
      out << row * 7919 % 1009 / 10.0 << ',' << row * 31 % 997 / 10.0 << ',' << row % 2 << '\n';
    }
    out.close();
    IngestRequest request{"csv", {{"data", w / "rows.csv"}}, {}};
    request.csv.target = "y";
    ASSERT_TRUE(ingest(request, w / "dataset", local_files()).ok());
    TrainJob job = job_in(w, copies ? "copies" : "unlike");
    job.model = linear_model();
    job.recipe.epochs = 1;
    Recorder recorder;
    const TrainResult result = run_to_the_end(job, recorder);
    const bool reported = std::ranges::any_of(result.warnings, [](const std::string& warning) {
      return warning.find("validation rows equal a training row, target included") != warning.npos;
    });
    EXPECT_EQ(reported, copies);
    EXPECT_EQ(recorder.line_with("equal a training row").empty(), !copies);
  }
}

TEST(RunWarnings, ManyParametersForFewRows) {
  DatasetSchema schema;
  schema.columns = {{ColumnSchema::Kind::kNumeric, "size", {}},
                    {ColumnSchema::Kind::kCategorical, "day", {"a", "b", "c"}}};
  RunPlan plan;
  plan.train_rows = 200;
  plan.trained_parameter_count = 100'000;
  const std::vector<std::string> reported = run_warnings(plan, {}, schema);
  ASSERT_EQ(reported.size(), 1u);
  EXPECT_EQ(
      reported[0],
      "the model has 100000 parameters to learn from 200 rows, which it can memorize (overfit). "
      "Column 'day' makes 3 of the 4 inputs, one for each category. Make the model smaller, "
      "or train on more rows.");
  plan.train_rows = 201;
  EXPECT_TRUE(run_warnings(plan, {}, schema).empty());
  plan.train_rows = 200;
  Recipe tuned;
  tuned.initial_weights.source = "model";
  EXPECT_TRUE(run_warnings(plan, tuned, schema).empty());
  schema.kind = DatasetSchema::Kind::kImage;
  EXPECT_TRUE(run_warnings(plan, {}, schema).empty()) << "images hold much themselves";
  schema.warnings.push_back({"KEY", {}, 1, "what the dataset warns of"});
  EXPECT_EQ(run_warnings(plan, {}, schema), std::vector<std::string>{"what the dataset warns of"});
}

}  // namespace
}  // namespace trainyard
