// Whole training runs on small data: they learn, report, stop, resume and repeat to the last bit.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "src/checkpoint/checkpoint.h"
#include "src/data/table/csv_cell.h"
#include "src/inference/predictor.h"
#include "src/job/recipe.h"
#include "src/job/reporter.h"
#include "src/job/train_job.h"
#include "src/runtime/host/host_memory.h"
#include "src/train/loop.h"
#include "src/train/resume.h"
#include "src/train/trainer.h"
#include "tests/data/faulty_files.h"
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

struct Run {
  Result<TrainResult> result = TrainResult{};
  Recorder recorder;
};

TrainJob image_job(const Workspace& w, const std::string& name) {
  TrainJob job;
  job.model = image_model();
  job.recipe.epochs = 3;
  job.recipe.batch_size = 16;
  job.recipe.optimizer.type = "adam";
  job.recipe.optimizer.learning_rate = 0.01;
  job.recipe.schedule.type = "cosine";
  job.recipe.schedule.warmup_steps = 3;
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

std::string checkpoint_of(const TrainJob& job, int64_t step, const char* file) {
  char name[32];
  std::snprintf(name, sizeof name, "step-%09lld", static_cast<long long>(step));
  return bytes_of(job.checkpoints / name / file);
}

/// Counts how often the loop or a node waits for the device.
class Waits final : public HostBackend {
 public:
  std::string_view name() const override { return inner_->name(); }
  bool has_kernel(std::string_view op_type) const override { return inner_->has_kernel(op_type); }
  std::unique_ptr<Kernel> prepare(const Graph& graph, const Node& node) override {
    return inner_->prepare(graph, node);
  }
  void synchronize() override { ++count; }
  int64_t count = 0;

 private:
  std::unique_ptr<Backend> inner_ = make_cpu_backend(1);
};

TEST(Training, WaitsAfterEachNodeUntilTheFirstCheckpointToNameAFault) {
  const Workspace w;
  make_dataset(w, /*images=*/true, 60);
  const auto job = [&](const std::string& name) {
    TrainJob named = image_job(w, name);
    named.recipe.checkpoint_every_steps = 3;
    return named;
  };
  std::vector<int64_t> waits;  // number of waits until each checkpoint
  const auto train_counted = [&](const TrainJob& named) {
    Waits backend;
    Recorder recorder;
    waits.clear();
    recorder.on_checkpoint = [&](int64_t) { waits.push_back(backend.count); };
    const auto result = train(named, backend, local_files(), recorder, {});
    ASSERT_TRUE(result.ok()) << result.error().message;
    ASSERT_GE(waits.size(), 3u);
  };
  train_counted(job("plain"));
  const std::vector<int64_t> plain = waits;
  TrainJob naming = job("naming");
  naming.names_faults = true;
  train_counted(naming);
  EXPECT_GT(waits[0] - plain[0], 3 * 10) << "three steps of more than ten nodes";
  EXPECT_EQ(waits[2] - waits[1], plain[2] - plain[1]);
  EXPECT_EQ(weights_of(naming), weights_of(job("plain")));
}

TEST(Training, OverfitsEightSamples) {
  const Workspace w;
  make_dataset(w, /*images=*/true, 8);
  TrainJob job = image_job(w, "a");
  job.model = image_model(/*dropout=*/0);
  job.recipe = {};
  job.recipe.steps = 150;
  job.recipe.batch_size = 8;
  job.recipe.optimizer.type = "adam";
  job.recipe.optimizer.learning_rate = 0.01;
  Recorder recorder;
  const auto result = run_job(job, recorder);
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_GT(recorder.series["train/loss"][1], 0.5);
  EXPECT_LT(recorder.series["train/loss"][150], 0.01);
  EXPECT_EQ(recorder.series["train/accuracy"][150], 1.0);
}

TEST(Training, ReportsEveryStepAndTheFinalMetrics) {
  const Workspace w;
  make_dataset(w, true, 100, 30);
  TrainJob job = image_job(w, "a");  // 80 training rows: 5 steps per epoch
  job.recipe.checkpoint_every_steps = 5;
  Recorder r;
  const auto result = run_job(job, r);
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(r.plan.steps_total, 15);
  EXPECT_EQ(r.plan.steps_per_epoch, 5);
  EXPECT_EQ(r.plan.validation_rows, 20);
  EXPECT_EQ(r.plan.test_rows, 30);
  EXPECT_EQ(r.series["train/loss"].size(), 15u);
  EXPECT_EQ(r.series["train/accuracy"].size(), 15u);
  // a cosine schedule changes it at every step
  EXPECT_EQ(r.series["train/learning_rate"].size(), 15u);
  EXPECT_EQ(r.series["val/loss"].size(), 3u);
  EXPECT_EQ(r.series["val/accuracy"].size(), 3u);
  EXPECT_TRUE(r.series["test/accuracy"].contains(15));
  EXPECT_GT(r.series["train/samples_per_second"][15], 0);
  EXPECT_EQ(r.saved, (std::vector<int64_t>{5, 10, 15}));
  EXPECT_GT(r.series["val/accuracy"][15], 0.8);
  std::map<std::string, double> final_metrics;
  for (const MetricPoint& m : result->final_metrics) final_metrics[m.key] = m.value;
  EXPECT_EQ(final_metrics["val/loss"], r.series["val/loss"][15]);
  EXPECT_EQ(final_metrics["test/loss"], r.series["test/loss"][15]);
  EXPECT_EQ(final_metrics["train/loss"], r.series["train/loss"][15]);
  EXPECT_EQ(result->arena_planned_bytes, result->arena_used_bytes);
  EXPECT_EQ(result->arena_planned_bytes, r.plan.memory.total());
}

TEST(Training, SameSeedGivesTheSameBits) {
  const Workspace w;
  make_dataset(w, true, 100);
  const TrainJob a = image_job(w, "a");
  const TrainJob b = image_job(w, "b");
  TrainJob c = image_job(w, "c");
  c.recipe.seed = 6;
  Recorder ra, rb, rc;
  ASSERT_TRUE(run_job(a, ra).ok());
  ASSERT_TRUE(run_job(b, rb).ok());
  ASSERT_TRUE(run_job(c, rc).ok());
  EXPECT_EQ(weights_of(a), weights_of(b));
  EXPECT_EQ(ra.series["train/loss"], rb.series["train/loss"]);
  EXPECT_NE(weights_of(a), weights_of(c));
}

// A test of whole runs could not distinguish the seed's effect on batches from its effect on
// initial weights, so this test checks the batches directly.
TEST(Training, BatchesFollowTheRecipe) {
  Recipe recipe;
  recipe.batch_size = 12;
  recipe.seed = 41;
  recipe.shuffle = false;
  recipe.drop_last = false;
  Split split;
  split.shift_max = 3;
  const Workspace w;
  make_dataset(w, true, 30);
  const Dataset data = Dataset::open(w / "dataset", false).value();
  const RunShape shape;
  const Preprocessing p = fit_preprocessing(data.schema(), data.train(), split.train);
  const Loader::Options options =
      BatchSource({recipe, shape, data, p, split}).options(/*first_step=*/9);
  EXPECT_EQ(options.batch_size, 12);
  EXPECT_EQ(options.seed, 41u);
  EXPECT_FALSE(options.shuffle);
  EXPECT_FALSE(options.drop_last);
  EXPECT_EQ(options.shift_max, 3);
  EXPECT_EQ(options.first_step, 9);
}

TEST(Training, WithoutDropLastAnEpochEndsAfterItsCompletedBatch) {
  const Workspace w;
  make_dataset(w, true, 100);
  TrainJob job = image_job(w, "a");  // 80 training rows: 3 batches of 24, and 8 rows
  job.recipe.batch_size = 24;
  job.recipe.drop_last = false;
  Recorder r;
  const auto result = run_job(job, r);
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(r.plan.steps_per_epoch, 4);
  EXPECT_EQ(result->steps_done, 12);
  std::vector<int64_t> evaluated;
  for (const auto& [step, loss] : r.series["val/loss"]) evaluated.push_back(step);
  EXPECT_EQ(evaluated, (std::vector<int64_t>{4, 8, 12}));
  EXPECT_EQ(result->arena_planned_bytes, result->arena_used_bytes);
}

// A batch that has each row twice has the same mean gradient as a batch that has each row once.
TEST(Training, ABatchOfRepeatedRowsTrainsLikeItsRows) {
  const Workspace w;
  make_dataset(w, /*images=*/false, 8);
  TrainJob once = image_job(w, "once");
  once.model = {};
  once.model.preset = "mlp";
  once.recipe.epochs = 20;
  once.recipe.batch_size = 8;
  once.recipe.validation_split = 0;
  TrainJob twice = once;
  twice.recipe.batch_size = 16;
  twice.recipe.drop_last = false;
  twice.checkpoints = w / "twice-checkpoints";
  twice.model_output = w / "twice-model";
  Recorder ro, rt;
  ASSERT_TRUE(run_job(once, ro).ok());
  const auto result = run_job(twice, rt);
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(result->steps_done, 20);
  for (const auto& [step, loss] : ro.series["train/loss"]) {
    EXPECT_NEAR(rt.series["train/loss"][step], loss, 1e-4 * loss) << step;
  }
}

TEST(Training, EvaluationAndCheckpointsChangeNoBit) {
  const Workspace w;
  make_dataset(w, true, 100);
  const TrainJob a = image_job(w, "a");
  TrainJob b = image_job(w, "b");
  b.recipe.evaluate_every_steps = 1;
  b.recipe.checkpoint_every_steps = 4;
  Recorder ra, rb;
  ASSERT_TRUE(run_job(a, ra).ok());
  ASSERT_TRUE(run_job(b, rb).ok());
  EXPECT_EQ(weights_of(a), weights_of(b));
  EXPECT_EQ(rb.saved, (std::vector<int64_t>{4, 8, 12, 15}));
}

TEST(Training, TheLastStepIsAlwaysEvaluatedAndSaved) {
  const Workspace w;
  make_dataset(w, true, 100);
  TrainJob job = image_job(w, "a");
  job.recipe.evaluate_every_steps = 6;
  job.recipe.checkpoint_every_steps = 7;
  Recorder r;
  r.on_checkpoint = [&](int64_t step) {
    EXPECT_GE(r.series["train/loss"].size(), static_cast<size_t>(step));
    EXPECT_TRUE(r.series["val/loss"].contains(15) || step < 15);
  };
  ASSERT_TRUE(run_job(job, r).ok());
  std::vector<int64_t> evaluated;
  for (const auto& [step, loss] : r.series["val/loss"]) evaluated.push_back(step);
  EXPECT_EQ(evaluated, (std::vector<int64_t>{6, 12, 15}));
  EXPECT_EQ(r.saved, (std::vector<int64_t>{7, 14, 15}));
}

// Stops a run in the middle of an epoch; the resumed run must give the same bits, including
// dropout, running statistics and optimizer state.
void expect_resumed_like_whole(const std::function<void(Recipe&)>& change) {
  const Workspace w;
  make_dataset(w, true, 100);
  TrainJob whole = image_job(w, "whole");
  change(whole.recipe);
  Recorder rw;
  ASSERT_TRUE(run_job(whole, rw).ok());

  TrainJob parts = image_job(w, "parts");
  parts.recipe = whole.recipe;
  parts.recipe.checkpoint_every_steps = 7;
  std::stop_source stop;
  Recorder first;
  first.stop_step = 7;
  first.stop = &stop;
  const auto stopped = run_job(parts, first, stop.get_token());
  ASSERT_FALSE(stopped.ok());
  EXPECT_EQ(stopped.error().code, ErrorCode::kCancelled);
  EXPECT_EQ(stopped.error().reason, "STOPPED");
  EXPECT_EQ(first.saved, (std::vector<int64_t>{7}));
  EXPECT_FALSE(std::filesystem::exists(parts.model_output));

  Recorder second;
  const auto result = run_job(parts, second);
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(second.plan.first_step, 7);
  EXPECT_EQ(second.series["train/loss"].begin()->first, 8);
  EXPECT_EQ(weights_of(parts), weights_of(whole));
  for (const char* file : {"weights.safetensors", "optimizer.safetensors"}) {
    EXPECT_EQ(checkpoint_of(parts, 15, file), checkpoint_of(whole, 15, file)) << file;
  }
  for (const auto& [step, loss] : second.series["train/loss"]) {
    EXPECT_EQ(loss, rw.series["train/loss"][step]) << step;
  }
}

TEST(Training, AStopBetweenCheckpointsLosesNoStep) {
  const Workspace w;
  make_dataset(w, true, 100);
  TrainJob job = image_job(w, "a");
  job.recipe.checkpoint_every_steps = 1000;
  std::stop_source stop;
  Recorder first;
  first.on_progress = [&](int64_t steps) {
    if (steps == 4) stop.request_stop();
  };
  bool all_before = false;
  first.on_checkpoint = [&](int64_t step) {
    all_before = first.series["train/loss"].contains(step);
  };
  const auto stopped = run_job(job, first, stop.get_token());
  ASSERT_FALSE(stopped.ok());
  EXPECT_TRUE(all_before) << "who resumes from a checkpoint that was reported lacks no metric";
  const int64_t last = first.series["train/loss"].rbegin()->first;
  EXPECT_EQ(first.saved, std::vector<int64_t>{last});
  Recorder second;
  ASSERT_TRUE(run_job(job, second).ok());
  EXPECT_EQ(second.plan.first_step, last);
}

TEST(Training, StopAndResumeEqualsNeverStopped) {
  expect_resumed_like_whole([](Recipe&) {});
}
TEST(Training, StopAndResumeEqualsNeverStoppedInTf32) {
  expect_resumed_like_whole([](Recipe& r) { r.precision = Precision::kTf32; });
}
TEST(Training, StopAndResumeEqualsNeverStoppedInBf16) {
  expect_resumed_like_whole([](Recipe& r) { r.precision = Precision::kBf16; });
}
TEST(Training, StopAndResumeEqualsNeverStoppedInFp16) {
  expect_resumed_like_whole([](Recipe& r) { r.precision = Precision::kFp16; });
}
TEST(Training, StopAndResumeBeforeACompletedBatchEqualsNeverStopped) {
  expect_resumed_like_whole([](Recipe& r) {
    r.batch_size = 24;  // out of 80 rows: every fourth batch has 16 rows from the beginning of the
                        // epoch's order
    r.accumulate_steps = 2;
    r.drop_last = false;
    r.epochs = 0;
    r.steps = 15;
  });
}

// Between steps the weights are F32: checkpoints have the same tensors as those of an fp32 job, and
// steps too small for bf16 accumulate.
TEST(Training, Bf16KeepsItsWeightsInF32) {
  const Workspace w;
  make_dataset(w, true, 100);
  const TrainJob wide = image_job(w, "wide");
  TrainJob job = image_job(w, "narrow");
  job.recipe.precision = Precision::kBf16;
  Recorder rw, r;
  const auto expected = run_job(wide, rw);
  const auto result = run_job(job, r);
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(result->arena_planned_bytes, result->arena_used_bytes);
  EXPECT_NE(weights_of(job), weights_of(wide));
  const auto tensors = SafetensorsFile::open(job.model_output / "model.safetensors").value();
  for (const TensorView& t : tensors.tensors()) EXPECT_EQ(t.type.dtype, DType::kF32) << t.name;
  EXPECT_EQ(checkpoint_of(job, 15, "weights.safetensors").size(),
            checkpoint_of(wide, 15, "weights.safetensors").size());
  EXPECT_EQ(r.plan.memory.parameter_bytes, rw.plan.memory.parameter_bytes);
  EXPECT_EQ(r.plan.memory.optimizer_bytes, rw.plan.memory.optimizer_bytes);
  EXPECT_LT(r.plan.memory.activation_bytes, rw.plan.memory.activation_bytes * 2 / 3);
  EXPECT_NEAR(r.series["train/loss"][15], rw.series["train/loss"][15], 0.1);
}

TEST(Training, StopBeforeTheFirstStepLeavesAResumableJob) {
  const Workspace w;
  make_dataset(w, true, 100);
  const TrainJob whole = image_job(w, "whole");
  const TrainJob parts = image_job(w, "parts");
  Recorder rw, first, second;
  ASSERT_TRUE(run_job(whole, rw).ok());
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(run_job(parts, first, stop.get_token()).error().reason, "STOPPED");
  ASSERT_TRUE(run_job(parts, second).ok());
  EXPECT_EQ(weights_of(parts), weights_of(whole));
}

// The process is killed after step 10, and its newest checkpoint is damaged on disk.
TEST(Training, ResumesFromAnOlderCheckpointAfterAKill) {
  const Workspace w;
  make_dataset(w, true, 100);
  const TrainJob whole = image_job(w, "whole");
  TrainJob parts = image_job(w, "parts");
  parts.recipe.checkpoint_every_steps = 5;
  Recorder rw, first, second;
  ASSERT_TRUE(run_job(whole, rw).ok());
  struct Killed {};
  first.on_checkpoint = [](int64_t step) {
    if (step == 10) throw Killed();
  };
  EXPECT_THROW((void)run_job(parts, first), Killed);
  std::filesystem::resize_file(parts.checkpoints / "step-000000010" / "weights.safetensors", 100);
  const auto result = run_job(parts, second);
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(second.plan.first_step, 5);
  EXPECT_NE(second.line_with("step-000000010 is damaged"), "");
  EXPECT_EQ(weights_of(parts), weights_of(whole));
}

TEST(Training, AJobWithOnlyDamagedCheckpointsDoesNotStartOver) {
  const Workspace w;
  make_dataset(w, true, 100);
  const TrainJob job = image_job(w, "a");
  Recorder first, second;
  ASSERT_TRUE(run_job(job, first).ok());
  for (const auto& entry : std::filesystem::directory_iterator(job.checkpoints)) {
    std::filesystem::resize_file(entry.path() / "weights.safetensors", 100);
  }
  const auto result = run_job(job, second);
  ASSERT_FALSE(result.ok()) << "the steps that are lost are many: somebody decides";
  EXPECT_EQ(result.error().code, ErrorCode::kDataLoss) << result.error().message;
  EXPECT_TRUE(second.series.empty());
}

TEST(Training, KeepsAsManyCheckpointsAsAskedFor) {
  const Workspace w;
  make_dataset(w, true, 100);
  TrainJob job = image_job(w, "a");
  job.recipe.checkpoint_every_steps = 1;
  job.recipe.keep_checkpoints = 3;
  Recorder r;
  ASSERT_TRUE(run_job(job, r).ok());
  EXPECT_GT(r.saved.size(), 3u);
  const std::filesystem::directory_iterator folders(job.checkpoints);
  EXPECT_EQ(std::distance(begin(folders), end(folders)), 3);
}

TEST(Training, AResumeWithOtherThreadsIsReported) {
  const Workspace w;
  make_dataset(w, true, 100);
  TrainJob job = image_job(w, "a");
  Recorder first, same, other;
  ASSERT_TRUE(run_job(job, first).ok());
  ASSERT_TRUE(run_job(job, same).ok());
  EXPECT_EQ(same.line_with("resuming with backend"), "");
  job.threads += 1;
  ASSERT_TRUE(run_job(job, other).ok());
  EXPECT_NE(other.line_with("resuming with backend"), "");
}

TEST(Training, FinishedJobResumesToTheSameModelAndMetrics) {
  const Workspace w;
  make_dataset(w, true, 100, 30);
  const TrainJob job = image_job(w, "a");
  Recorder first, second;
  const auto a = run_job(job, first);
  ASSERT_TRUE(a.ok());
  const std::string weights = weights_of(job);
  const std::string info = bytes_of(job.model_output / "model.json");
  const auto b = run_job(job, second);  // simulates a process killed before its report
  ASSERT_TRUE(b.ok()) << b.error().message;
  EXPECT_EQ(second.plan.first_step, 15);
  EXPECT_EQ(weights_of(job), weights);
  EXPECT_EQ(bytes_of(job.model_output / "model.json"), info);
}

// Returns a job of 40 rows and 4 steps, which writes a checkpoint after every second step, and the
// model. Tests let each of its file operations fail in turn.
TrainJob short_job(const Workspace& w, const std::string& name) {
  TrainJob job = image_job(w, name);
  job.recipe.epochs = 0;
  job.recipe.steps = 4;
  job.recipe.validation_split = 0;
  job.recipe.checkpoint_every_steps = 2;
  return job;
}

TEST(Training, DyingAtAnyFileOperationCostsNoBit) {
  const Workspace w;
  make_dataset(w, true, 40);
  const TrainJob whole = short_job(w, "whole");
  Recorder rw;
  FaultyFiles count;
  ASSERT_TRUE(run_job(whole, rw, {}, count).ok());
  ASSERT_GT(count.operations(), 10);
  for (int at = 0; at < count.operations(); ++at) {
    const TrainJob job = short_job(w, "job" + std::to_string(at));
    FaultyFiles dying(at, FaultyFiles::Mode::kCrash);
    Recorder first, second;
    (void)run_job(job, first, {}, dying);
    const auto result = run_job(job, second);
    ASSERT_TRUE(result.ok()) << at << ": " << result.error().message;
    EXPECT_EQ(weights_of(job), weights_of(whole)) << at;
  }
}

TEST(Training, AFailingDiskIsReportedAndTrainingContinues) {
  const Workspace w;
  make_dataset(w, true, 40);
  FaultyFiles count;
  Recorder r0;
  ASSERT_TRUE(run_job(short_job(w, "whole"), r0, {}, count).ok());
  int checkpoint_failures = 0;
  int refusals = 0;
  for (int at = 0; at < count.operations(); ++at) {
    const TrainJob job = short_job(w, "job" + std::to_string(at));
    FaultyFiles faulty(at, FaultyFiles::Mode::kBefore);
    Recorder r;
    const auto result = run_job(job, r, {}, faulty);
    EXPECT_EQ(r.series["train/loss"].size(), 4u) << at;
    checkpoint_failures += r.failed.empty() ? 0 : 1;
    if (result.ok()) {
      EXPECT_TRUE(Predictor::open(job.model_output, *testing::make_tested_backend(1)).ok()) << at;
    } else {  // the model could not be written, and no partial model remains
      ++refusals;
      EXPECT_FALSE(std::filesystem::exists(job.model_output)) << at;
    }
  }
  EXPECT_GT(checkpoint_failures, 0);
  EXPECT_GT(refusals, 0);
}

TEST(Training, RefusesTheCheckpointOfAnotherJob) {
  const Workspace w;
  make_dataset(w, true, 100);
  TrainJob job = image_job(w, "a");
  Recorder first, second;
  ASSERT_TRUE(run_job(job, first).ok());
  TrainJob narrow = job;
  narrow.recipe.precision = Precision::kBf16;
  TrainJob rounded = job;  // gives the same bits on a CPU, but not on a GPU
  rounded.recipe.precision = Precision::kTf32;
  job.recipe.optimizer.learning_rate = 0.02;
  for (const TrainJob& other : {job, narrow, rounded}) {
    const auto result = run_job(other, second);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().reason, "CHECKPOINT_FOREIGN");
    EXPECT_NE(result.error().message.find(": the checkpoint has "), std::string::npos);
  }
}

// Training flushes denormal numbers. Code that reads and writes numbers during a run, on its thread
// and on threads started there, must not flush them.
TEST(Training, NumbersAreReadAndWrittenAsTheyAreBesideARun) {
  const auto check = [] {
    const CellReader cells;
    const volatile auto narrow = static_cast<float>(cells.read("1e-40").value);
    EXPECT_EQ(nlohmann::json(narrow).dump(), nlohmann::json(1e-40f).dump());
    EXPECT_EQ(std::bit_cast<uint32_t>(static_cast<float>(narrow)), 0x000116C2u);
    EXPECT_EQ(std::bit_cast<uint64_t>(cells.read("5e-324").value), 1u);
    EXPECT_EQ(std::bit_cast<uint64_t>(nlohmann::json::parse("5e-324").get<double>()), 1u);
  };
  const Workspace w;
  make_dataset(w, true, 100);
  TrainJob job = image_job(w, "a");
  job.recipe.checkpoint_every_steps = 5;
  job.threads = 2;
  Recorder recorder;
  recorder.on_progress = [&](int64_t) {
    check();
    std::jthread(check).join();
  };
  recorder.on_checkpoint = [&](int64_t) { check(); };
  ASSERT_TRUE(run_job(job, recorder).ok());
  EXPECT_GT(recorder.signs, 10);
  EXPECT_FALSE(recorder.saved.empty());
  check();
}

TEST(Training, F16LossThatIsNotFiniteNamesTheStepAndKeepsTheCheckpoint) {
  const Workspace w;
  make_dataset(w, /*images=*/false, 64);
  TrainJob job = image_job(w, "a");
  job.model = {};
  job.model.preset = "mlp";
  job.model.parameters.set("hidden", std::vector<int64_t>{8});
  job.recipe = {};
  job.recipe.steps = 400;
  job.recipe.batch_size = 16;
  job.recipe.checkpoint_every_steps = 1;
  job.recipe.optimizer.learning_rate = 100;
  Recorder r;
  const auto result = run_job(job, r);
  ASSERT_FALSE(result.ok());
  const Error& e = result.error();
  EXPECT_EQ(e.code, ErrorCode::kFailedPrecondition);
  EXPECT_EQ(e.reason, "LOSS_NOT_FINITE");
  const std::string step = e.metadata.at("step");
  EXPECT_NE(e.message.find("step "), std::string::npos) << e.message;
  EXPECT_NE(e.message.find("recipe.optimizer.learning_rate (currently 100)"), std::string::npos);
  ASSERT_FALSE(r.saved.empty());
  EXPECT_LT(r.saved.back(), std::stoll(step));
  EXPECT_EQ(e.metadata.at("last_checkpoint_step"), std::to_string(r.saved.back()));
  const auto kept = load_newest_checkpoint(job.checkpoints, nullptr);
  ASSERT_TRUE(kept.ok()) << kept.error().message;
  EXPECT_EQ(kept->state.step, r.saved.back());
  for (const TensorView& t : kept->weights.tensors()) {
    const auto* values = reinterpret_cast<const float*>(t.bytes.data());
    for (int64_t i = 0; i < t.type.shape.elements(); ++i) ASSERT_TRUE(std::isfinite(values[i]));
  }
  for (const auto& [at, loss] : r.series["train/loss"]) {
    EXPECT_TRUE(std::isfinite(loss) || at == std::stoll(step)) << at;
  }
  EXPECT_FALSE(std::filesystem::exists(job.model_output));
}

// One layer's weights grow a millionfold with each step. The loss grows with them, and is still
// finite when the weights no longer are.
TEST(Training, F16WeightsThatAreNotFiniteBecomeNoCheckpoint) {
  const Workspace w;
  make_dataset(w, /*images=*/true, 64);
  TrainJob job = image_job(w, "a");
  LayerSpec layer;
  layer.op = "Gemm";
  job.model = {};
  job.model.layers = {layer};
  job.recipe = {};
  job.recipe.steps = 20;
  job.recipe.batch_size = 16;
  job.recipe.checkpoint_every_steps = 1;
  job.recipe.optimizer.learning_rate = 1e6;
  job.recipe.optimizer.weight_decay = 1;
  Recorder r;
  const auto result = run_job(job, r);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().reason, "LOSS_NOT_FINITE");
  EXPECT_NE(result.error().message.find("has values that are not finite"), std::string::npos)
      << result.error().message;
  ASSERT_FALSE(r.saved.empty());
  EXPECT_EQ(result.error().metadata.at("last_checkpoint_step"), std::to_string(r.saved.back()));
}

TEST(Training, RegressionLearnsAndPredictsInTheTargetsUnits) {
  const Workspace w;
  make_dataset(w, false, 400, 50);
  TrainJob job = image_job(w, "a");
  job.model = {};
  job.model.preset = "mlp";
  job.recipe = {};
  job.recipe.epochs = 30;
  job.recipe.batch_size = 32;
  job.recipe.validation_split = 0.1;
  job.recipe.optimizer.learning_rate = 0.1;
  Recorder r;
  const auto result = run_job(job, r);
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_FALSE(r.series.contains("train/accuracy"));
  EXPECT_LT(r.series["val/mae"].rbegin()->second, 0.05);  // the noise is uniform in [0, 0.1)
  EXPECT_LT(r.series["test/mae"].rbegin()->second, 0.05);

  const auto backend = testing::make_tested_backend(1);
  const auto predictor = Predictor::open(job.model_output, *backend).value();
  const RawRows rows =
      parse_raw_rows(predictor->schema(), "csv", "x4,x3,x2,x1,x0\n0.5,0.5,0.5,0.5,0.5\n1,0,0,0,0\n")
          .value();
  const auto predictions = predictor->predict(rows);
  ASSERT_EQ(predictions.size(), 2u);
  EXPECT_NEAR(predictions[0].value, 3 + 0.5 * 15 + 0.05, 0.1);
  EXPECT_NEAR(predictions[1].value, 3 + 5 + 0.05, 0.1);
}

// Prediction computes in the job's precision, as the evaluation did.
class PredictorOf : public ::testing::TestWithParam<Precision> {};
INSTANTIATE_TEST_SUITE_P(Precisions, PredictorOf,
                         ::testing::Values(Precision::kFp32, Precision::kBf16, Precision::kFp16));

TEST_P(PredictorOf, AJobAgreesWithTheTestMetricAndDoesNotDependOnTheRequest) {
  const Workspace w;
  make_dataset(w, true, 100, 70);
  TrainJob job = image_job(w, "a");
  job.recipe.precision = GetParam();
  Recorder r;
  ASSERT_TRUE(run_job(job, r).ok());
  const auto backend = testing::make_tested_backend(1);
  const auto predictor = Predictor::open(job.model_output, *backend).value();
  const std::string csv = bytes_of(w / "test.csv");
  const RawRows rows = parse_raw_rows(predictor->schema(), "csv", csv).value();
  ASSERT_EQ(rows.rows, 70);
  const auto predictions = predictor->predict(rows);
  const Dataset data = Dataset::open(job.dataset, true).value();
  int64_t correct = 0;
  double loss = 0;
  for (size_t i = 0; i < predictions.size(); ++i) {
    const int32_t label = data.test().target_class[i];
    correct += predictions[i].label == label ? 1 : 0;
    loss -=
        std::log(static_cast<double>(predictions[i].probabilities.at(static_cast<size_t>(label))));
    float sum = 0;
    for (const float p : predictions[i].probabilities) sum += p;
    EXPECT_NEAR(sum, 1, 1e-5);
  }
  EXPECT_EQ(static_cast<double>(correct) / 70, r.series["test/accuracy"].rbegin()->second);
  EXPECT_NEAR(loss / 70, r.series["test/loss"].rbegin()->second, 1e-5);

  const std::string header = csv.substr(0, csv.find('\n') + 1);
  const std::string line = csv.substr(header.size(), csv.find('\n', header.size()) - header.size());
  const RawRows one = parse_raw_rows(predictor->schema(), "csv", header + line + "\n").value();
  EXPECT_EQ(predictor->predict(one)[0].probabilities, predictions[0].probabilities);
}

TEST(Predictor, RefusesAnIncompleteOrForeignModel) {
  const Workspace w;
  make_dataset(w, true, 100);
  const TrainJob job = image_job(w, "a");
  Recorder r;
  ASSERT_TRUE(run_job(job, r).ok());
  const auto backend = testing::make_tested_backend(1);
  EXPECT_EQ(Predictor::open(w / "nothing", *backend).error().code, ErrorCode::kNotFound);
  TrainJob other = image_job(w, "b");
  other.model.layers[4].attributes.set("units", int64_t{17});
  ASSERT_TRUE(run_job(other, r).ok());
  std::filesystem::copy_file(other.model_output / "model.safetensors",
                             job.model_output / "model.safetensors",
                             std::filesystem::copy_options::overwrite_existing);
  const auto mixed = Predictor::open(job.model_output, *backend);
  ASSERT_FALSE(mixed.ok());
  EXPECT_EQ(mixed.error().reason, "MODEL_FILE_INVALID");
  EXPECT_NE(mixed.error().message.find("gemm1.weight"), std::string::npos) << mixed.error().message;
}

}  // namespace
}  // namespace trainyard
