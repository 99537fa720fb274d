// Tests of jobs whose validation rows are chosen by class, group, time or fold. They fail if a job
// measures itself on rows that it trains on, a resumed job changes sides, a setting without effect
// passes, or a metric that has no value chooses a model or ends a job.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "src/data/dataset.h"
#include "src/job/fork.h"
#include "src/planning/job_plan.h"
#include "src/planning/recipe_check.h"
#include "tests/engine/run_job.h"
#include "tests/engine/train_support.h"

namespace trainyard {
namespace {

using testing::bytes_of;
using testing::Recorder;
using testing::run_job;
using testing::Workspace;

constexpr int64_t kRows = 120;

/// A table whose rows have a number, one of 11 or 12 patients, a day that falls from row to row,
/// and a class. With `rare_class`, three rows are of class "rare", all of the last patient.
std::string visits(bool rare_class) {
  std::string text = "x,patient,day,y\n";
  for (int64_t i = 0; i < kRows; ++i) {
    const bool rare = rare_class && i >= kRows - 3;
    text += std::to_string(i % 10) + ",p" + std::to_string(rare ? 11 : i % 11) + "," +
            std::to_string(kRows - i) +
            (rare         ? ",rare\n"
             : i % 2 == 0 ? ",a\n"
                          : ",b\n");
  }
  return text;
}

DatasetSchema ingest_text(const Workspace& w, const std::string& text, const CsvOptions& options) {
  const std::span<const std::byte> part = std::as_bytes(std::span(text));
  EXPECT_TRUE(local_files().write_file(w / "data.csv", std::span(&part, 1)).ok());
  IngestRequest request{"csv", {{"data", w / "data.csv"}}, options};
  const auto schema = ingest(request, w / "dataset", local_files());
  EXPECT_TRUE(schema.ok()) << schema.error().message;
  return schema.value();
}

CsvOptions visit_options() {
  CsvOptions options;
  options.target = "y";
  options.ignore = {"patient", "day"};
  options.group = "patient";
  options.time = "day";
  return options;
}

TrainJob visits_job(const Workspace& w, const std::string& name) {
  TrainJob job;
  job.model.preset = "mlp";
  job.model.parameters.set("hidden", std::vector<int64_t>{4});
  job.recipe.epochs = 2;
  job.recipe.batch_size = 8;
  job.recipe.validation_split = 0.2;
  job.recipe.optimizer.type = "adam";
  job.dataset = w / "dataset";
  job.checkpoints = w / (name + "-checkpoints");
  job.model_output = w / (name + "-model");
  return job;
}

TEST(ValidationRows, OfGroupsTimesAndFoldsTrainAndResumeToTheSameBits) {
  const Workspace w;
  (void)ingest_text(w, visits(false), visit_options());
  const std::vector<std::pair<std::string, std::function<void(Recipe&)>>> splits = {
      {"class", [](Recipe&) {}},
      {"group", [](Recipe& r) { r.split_group = "patient"; }},
      {"time", [](Recipe& r) { r.split_time = "day"; }},
      {"fold",
       [](Recipe& r) {
         r.validation_split = 0;
         r.split_folds = 4;
         r.split_fold = 3;
       }},
  };
  std::set<std::string> weights;
  for (const auto& [name, change] : splits) {
    SCOPED_TRACE(name);
    TrainJob job = visits_job(w, name), stopped = visits_job(w, name + "-stopped");
    change(job.recipe);
    change(stopped.recipe);
    stopped.recipe.checkpoint_every_steps = job.recipe.checkpoint_every_steps = 5;
    Recorder whole;
    const auto result = run_job(job, whole);
    ASSERT_TRUE(result.ok()) << result.error().message;
    EXPECT_EQ(whole.plan.train_rows + whole.plan.validation_rows, kRows);
    EXPECT_GT(whole.plan.validation_rows, 10);

    std::stop_source stop;
    Recorder first, second;
    first.stop_step = 5;
    first.stop = &stop;
    EXPECT_FALSE(run_job(stopped, first, stop.get_token()).ok());
    const auto resumed = run_job(stopped, second);
    ASSERT_TRUE(resumed.ok()) << resumed.error().message;
    EXPECT_GT(second.plan.first_step, 0);
    const std::string bits = bytes_of(job.model_output / "model.safetensors");
    EXPECT_EQ(bits, bytes_of(stopped.model_output / "model.safetensors"));
    weights.insert(bits);
  }
  EXPECT_EQ(weights.size(), splits.size()) << "each split trains other rows";
  for (const auto& file : std::filesystem::directory_iterator(w / "group-model")) {
    EXPECT_EQ(bytes_of(file.path()).find("group_rows"), std::string::npos) << file.path();
  }
}

TEST(ValidationRows, AForkKeepsTheSplit) {
  const Workspace w;
  (void)ingest_text(w, visits(false), visit_options());
  TrainJob parent = visits_job(w, "parent");
  parent.recipe.checkpoint_every_steps = 5;
  parent.recipe.split_time = "day";
  Recorder recorder;
  ASSERT_TRUE(run_job(parent, recorder).ok());
  const CheckpointFolder from = list_checkpoints(parent.checkpoints).at(0);
  TrainJob child = parent;
  child.recipe.epochs = 3;
  EXPECT_TRUE(plan_fork(from, child).ok());
  child.recipe.split_time = "";
  child.recipe.split_group = "patient";
  const auto fork = plan_fork(from, child);
  ASSERT_FALSE(fork.ok());
  EXPECT_EQ(fork.error().reason, "FORK_CHANGE_UNSUPPORTED");
  EXPECT_EQ(fork.error().violations[0].field, "spec.recipe.split.group");
}

TEST(ValidationRows, AClassWithoutTrainingRowsEndsTheJob) {
  const Workspace w;
  (void)ingest_text(w, visits(true), visit_options());
  Recorder recorder;
  bool refused = false;
  for (uint64_t seed = 0; seed < 40 && !refused; ++seed) {
    TrainJob grouped = visits_job(w, "group" + std::to_string(seed));
    grouped.recipe.split_group = "patient";
    grouped.recipe.validation_split = 0.05;
    grouped.recipe.seed = seed;
    const auto result = run_job(grouped, recorder);
    if (result.ok()) continue;
    refused = true;
    EXPECT_EQ(result.error().reason, "CLASS_NOT_TRAINED");
    EXPECT_NE(result.error().message.find(
                  "recipe.split.group: the class 'rare' has no row to train on: all 3 of its rows"),
              std::string::npos)
        << result.error().message;
  }
  EXPECT_TRUE(refused) << "some seed holds out the patient with all rows of a class";
}

TEST(ValidationRows, SettingsWithoutEffectAndUnknownColumnsAreRefused) {
  const Workspace w;
  const DatasetSchema schema = ingest_text(w, visits(false), visit_options());
  const auto refusal = [&](const std::function<void(Recipe&)>& change) {
    TrainJob job = visits_job(w, "refused");
    change(job.recipe);
    const auto plan = plan_run(job.model, job.recipe, schema);
    EXPECT_FALSE(plan.ok());
    return plan.ok() ? std::string() : plan.error().message;
  };
  EXPECT_EQ(refusal([](Recipe& r) { r.split_group = "patien"; }),
            "recipe.split.group: 'patien' is not a column of the dataset; did you mean 'patient'?");
  EXPECT_EQ(
      refusal([](Recipe& r) { r.split_time = "moment"; }),
      "recipe.split.time: 'moment' is not a column of the dataset; the columns are 'x', 'patient', "
      "'day', 'y'");
  EXPECT_EQ(
      refusal([](Recipe& r) { r.split_group = "x"; }),
      "recipe.split.group: the dataset was made without the values of 'x' for splits; make it "
      "again with the option group: x of csv or jsonl, or give the file as dataset.path, and "
      "the column is kept");
  EXPECT_EQ(refusal([](Recipe& r) { r.split_group = "y"; }),
            "recipe.split.group: 'y' is the target, expected another column");
  EXPECT_EQ(
      refusal([](Recipe& r) {
        r.split_group = "patient";
        r.validation_split = 0;
      }),
      "recipe.split.group: has no effect without validation rows; set recipe.validation_split, "
      "such as 0.2, or recipe.split.folds");
  EXPECT_EQ(refusal([](Recipe& r) {
              r.split_group = "patient";
              r.split_time = "day";
            }),
            "recipe.split: has both group and time; expected only one");
  EXPECT_EQ(refusal([](Recipe& r) { r.split_fold = 2; }),
            "recipe.split.fold: has no effect without recipe.split.folds; set both");
  const auto folds = [&](int64_t count, int64_t fold, const std::string& group = "") {
    return refusal([&](Recipe& r) {
      r.validation_split = 0;
      r.split_folds = count;
      r.split_fold = fold;
      r.split_group = group;
    });
  };
  EXPECT_EQ(folds(5, 0),
            "recipe.split.fold: is missing, expected 1..5; a job file without it becomes an array "
            "with a member for each fold");
  EXPECT_EQ(folds(5, 6), "recipe.split.fold: 6 is out of range, expected 1..5");
  EXPECT_EQ(folds(1, 1).find("recipe.split.folds: 1 is out of range, expected 2..100"), 0u);
  EXPECT_EQ(folds(101, 1).find("recipe.split.folds: 101 is out of range, expected 2..100"), 0u);
  EXPECT_EQ(folds(13, 1, "patient"),
            "recipe.split.folds: 13 is more than the 11 groups of 'patient', expected 2..11");
  EXPECT_EQ(refusal([](Recipe& r) {
              r.split_folds = 5;
              r.split_fold = 1;
            }),
            "recipe.validation_split: has no effect with recipe.split.folds: each fold holds out "
            "1 of 5 parts; remove one of them");
  EXPECT_NE(refusal([](Recipe& r) {
              r.validation_split = 0;
              r.split_time = "day";
              r.split_folds = 5;
              r.split_fold = 1;
            }).find("recipe.split.folds: does not go with recipe.split.time"),
            std::string::npos);
}

TEST(ValidationRows, TheWarningOfRareClassesCountsRowsThatRemain) {
  const Workspace w;
  std::string text = "x,y\n";
  for (int i = 0; i < 98; ++i) text += std::to_string(i) + (i % 2 == 0 ? ",a\n" : ",b\n");
  text += "98,c\n99,c\n";
  CsvOptions options;
  options.target = "y";
  const DatasetSchema schema = ingest_text(w, text, options);
  for (uint64_t seed = 0; seed < 8; ++seed) {
    TrainJob job = visits_job(w, "rare");
    job.recipe.validation_split = 0.5;
    job.recipe.seed = seed;
    const auto plan = plan_run(job.model, job.recipe, schema);
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    EXPECT_EQ(std::ranges::count_if(plan->warnings,
                                    [](const std::string& warning) {
                                      return warning.find(
                                                 "fewer than 10 training rows: 'c' has "
                                                 "1.") != std::string::npos;
                                    }),
              1)
        << seed;
  }
}

// The case tables/16: all validation rows are of one class, so that the ROC AUC is never defined.
TEST(ValidationRows, AMetricThatIsNeverDefinedChoosesNothing) {
  const Workspace w;
  std::string text = "x,y\n";
  for (int i = 0; i < 98; ++i) text += std::to_string(i) + ",a\n";
  text += "1.5,b\n2.5,b\n";
  CsvOptions options;
  options.target = "y";
  (void)ingest_text(w, text, options);
  TrainJob job = visits_job(w, "never");
  job.recipe.epochs = 6;
  job.recipe.validation_split = 0.1;
  job.recipe.keep_best = {"val/roc_auc", ""};
  job.recipe.early_stopping = {"val/roc_auc", 2, 0, ""};
  Recorder recorder;
  const auto result = run_job(job, recorder);
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(result->steps_done, recorder.plan.steps_total) << "nothing ends the job";
  EXPECT_EQ(recorder.line_with("stopped early"), "");
  EXPECT_EQ(recorder.line_with("the model has the weights of step"), "");
  ASSERT_FALSE(result->warnings.empty());
  EXPECT_EQ(result->warnings.front(),
            "val/roc_auc is never defined in this job: all 10 rows are of class 'a', but it "
            "compares classes; recipe.keep_best keeps nothing, and the model has the last step's "
            "weights; recipe.early_stopping never ends the job. Hold out more rows "
            "(recipe.validation_split), or choose another metric.");
}

// The case tables/19: the job reported an R2 of 0 beside a baseline of 1 without a word.
TEST(ValidationRows, R2OfEqualTargetsIsReported) {
  const Workspace w;
  std::string text = "x,y\n";
  for (int i = 0; i < 60; ++i) text += std::to_string(i) + (i < 40 ? ",1.5\n" : ",2.5\n");
  CsvOptions options;
  options.target = "y";
  options.target_kind = "numeric";
  options.time = "x";
  (void)ingest_text(w, text, options);
  TrainJob job = visits_job(w, "equal");
  job.recipe.split_time = "x";
  Recorder recorder;
  const auto result = run_job(job, recorder);
  ASSERT_TRUE(result.ok()) << result.error().message;
  ASSERT_FALSE(result->warnings.empty());
  EXPECT_EQ(
      result->warnings.front(),
      "val/r2 is never defined in this job: all 12 rows have the target 2.5; it is reported as "
      "1 if all predictions are exact, else as 0. Hold out more rows (recipe.validation_split), "
      "or choose another metric.");
}

TEST(ValidationRows, AnAverageThatHardlyMovesIsReported) {
  const Workspace w;
  const DatasetSchema schema = ingest_text(w, visits(false), visit_options());
  TrainJob job = visits_job(w, "average");
  job.recipe.epochs = 0;
  job.recipe.steps = 60;
  const auto warns = [&](double decay) {
    job.recipe.ema_decay = decay;
    const auto plan = plan_run(job.model, job.recipe, schema).value();
    return std::ranges::any_of(plan.warnings, [](const std::string& warning) {
      return warning.find(
                 "with recipe.ema.decay 0.9999 and 60 steps, 99 % of the averaged weights") !=
                 std::string::npos &&
             warning.find("Use a decay of at most 0.9249") != std::string::npos;
    });
  };
  EXPECT_TRUE(warns(0.9999));
  EXPECT_FALSE(warns(0.9));
}

TEST(ValidationRows, TheLogSaysWhichParametersDecay) {
  const Workspace w;
  (void)ingest_text(w, visits(false), visit_options());
  TrainJob job = visits_job(w, "decay");
  job.recipe.optimizer = default_optimizer("adamw");
  job.recipe.optimizer.weight_decay_on = "matrices";
  Recorder recorder;
  ASSERT_TRUE(run_job(job, recorder).ok());
  EXPECT_EQ(recorder.line_with("weight decay"),
            "weight decay acts on 2 of 4 parameters: fc1.weight, fc2.weight; not on fc1.bias, "
            "fc2.bias");
}

}  // namespace
}  // namespace trainyard
