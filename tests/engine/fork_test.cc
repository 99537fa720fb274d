// Tests of runs that fork from a checkpoint of another run: what they keep, what may differ, and
// that a failing disk leaves no partial files.
#include "src/job/fork.h"

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "src/job/identity.h"
#include "src/job/recipe.h"
#include "src/job/train_job.h"
#include "tests/data/faulty_files.h"
#include "tests/engine/run_job.h"
#include "tests/engine/train_support.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;
using testing::bytes_of;
using testing::image_model;
using testing::make_dataset;
using testing::Recorder;
using testing::run_job;
using testing::Workspace;

using Change = std::function<void(TrainJob&)>;

class ForkTest : public ::testing::Test {
 protected:
  static constexpr int64_t kStep = 7;

  ForkTest() {
    make_dataset(workspace_, true, 100);
    parent_.model = image_model();
    Recipe& recipe = parent_.recipe;
    recipe.steps = 15;
    recipe.batch_size = 16;
    recipe.optimizer.type = "sgd";
    recipe.optimizer.learning_rate = 0.01;
    recipe.optimizer.momentum = 0.9;
    recipe.ema_decay = 0.9;
    recipe.seed = 5;
    recipe.validation_split = 0.2;
    recipe.checkpoint_every_steps = kStep;
    recipe.evaluate_every_steps = kStep;
    recipe.keep_checkpoints = 10;
    recipe.keep_best = {"val/loss", ""};
    recipe.early_stopping = {"val/loss", 50, 0, ""};
    recipe.augmentation = {};
    parent_.dataset = workspace_ / "dataset";
    parent_.threads = 1;
    place(parent_, "parent");
  }

  void place(TrainJob& job, const std::string& name) {
    job.checkpoints = workspace_ / (name + "-checkpoints");
    job.model_output = workspace_ / (name + "-model");
  }
  void run_parent() {
    Recorder recorder;
    ASSERT_TRUE(run_job(parent_, recorder).ok());
    ASSERT_EQ(list_checkpoints(parent_.checkpoints).size(), 3u);
  }
  CheckpointFolder checkpoint() const {
    for (const CheckpointFolder& c : list_checkpoints(parent_.checkpoints)) {
      if (c.step == kStep) return c;
    }
    return {};
  }
  TrainJob child(const Change& change) {
    TrainJob job = parent_;
    place(job, "child");
    change(job);
    return job;
  }

  Workspace workspace_;
  TrainJob parent_;
};

TEST_F(ForkTest, WithoutAChangeItIsTheSameRunToTheLastBit) {
  run_parent();
  const TrainJob job = child([](TrainJob&) {});
  const auto fork = plan_fork(checkpoint(), job);
  ASSERT_TRUE(fork.ok()) << fork.error().message;
  EXPECT_TRUE(fork->changes.empty());
  ASSERT_TRUE(write_fork(local_files(), *fork, job.checkpoints).ok());
  Recorder recorder;
  ASSERT_TRUE(run_job(job, recorder).ok());
  EXPECT_EQ(recorder.plan.first_step, kStep);
  EXPECT_EQ(bytes_of(job.model_output / "model.safetensors"),
            bytes_of(parent_.model_output / "model.safetensors"));
}

// The checkpoint is one that an upgrade to a version with another arithmetic would leave.
TEST_F(ForkTest, ARunWithOtherArithmeticContinuesOnlyAsAFork) {
  run_parent();
  Fork before{checkpoint(), *find_state(checkpoint()), {}};
  auto extra = nlohmann::json::parse(before.state.extra_json);
  auto description = nlohmann::json::parse(extra["run"].get<std::string>());
  description["arithmetic"] = "denormal numbers as they are";
  extra["run"] = description.dump();
  before.state.extra_json = extra.dump();
  before.state.job_digest = "1:of then";
  TrainJob old = parent_;
  place(old, "old");
  ASSERT_TRUE(write_fork(local_files(), before, old.checkpoints).ok());

  Recorder recorder;
  const auto resumed = run_job(old, recorder);
  ASSERT_FALSE(resumed.ok());
  EXPECT_EQ(resumed.error().reason, "CHECKPOINT_FOREIGN");
  EXPECT_EQ(
      resumed.error().message,
      "checkpoint step-000000007 was written by a version whose computations differ, so the job "
      "would continue with other bits (arithmetic: the checkpoint has denormal numbers as they "
      "are, the job has denormal numbers count as 0); expected a retry or a fork of the job, "
      "or a folder without checkpoints");
  EXPECT_TRUE(recorder.series.empty());

  const TrainJob job = child([](TrainJob&) {});
  const auto fork = plan_fork(list_checkpoints(old.checkpoints).at(0), job);
  ASSERT_TRUE(fork.ok()) << fork.error().message;
  EXPECT_EQ(fork->changes,
            (std::vector<std::string>{
                "arithmetic: denormal numbers as they are becomes denormal numbers count as 0"}));
  ASSERT_TRUE(write_fork(local_files(), *fork, job.checkpoints).ok());
  const auto went_on = run_job(job, recorder);
  ASSERT_TRUE(went_on.ok()) << went_on.error().message;
  EXPECT_EQ(recorder.plan.first_step, kStep);
}

TEST_F(ForkTest, ItsFilesAreLinkedToTheParentsAndSurviveTheirDeletion) {
  run_parent();
  const TrainJob job = child([](TrainJob& j) { j.recipe.optimizer.learning_rate = 0.1; });
  const auto fork = plan_fork(checkpoint(), job);
  ASSERT_TRUE(fork.ok()) << fork.error().message;
  const auto digests = write_fork(local_files(), *fork, job.checkpoints);
  ASSERT_TRUE(digests.ok()) << digests.error().message;
  EXPECT_EQ(digests->weights_sha256.size(), 64u);
  EXPECT_NE(digests->weights_sha256, digests->optimizer_sha256);
  const fs::path copy = list_checkpoints(job.checkpoints).at(0).path;
  for (const char* name : {"weights.safetensors", "optimizer.safetensors"}) {
    EXPECT_TRUE(fs::equivalent(copy / name, checkpoint().path / name)) << name;
  }
  fs::remove_all(parent_.checkpoints);
  Recorder recorder;
  ASSERT_TRUE(run_job(job, recorder).ok());
  EXPECT_EQ(recorder.plan.first_step, kStep);
  EXPECT_EQ(recorder.series.at("train/loss").begin()->first, kStep + 1);
  EXPECT_NE(bytes_of(job.model_output / "model.safetensors"),
            bytes_of(parent_.model_output / "model.safetensors"));
}

TEST_F(ForkTest, AForkOfAForkStartsFromTheSameCheckpoint) {
  run_parent();
  TrainJob first = child([](TrainJob& j) { j.recipe.steps = 20; });
  const auto fork = plan_fork(checkpoint(), first);
  ASSERT_TRUE(fork.ok());
  ASSERT_TRUE(write_fork(local_files(), *fork, first.checkpoints).ok());
  TrainJob second = first;
  place(second, "second");
  second.recipe.clip_norm = 1;
  const auto again = plan_fork(list_checkpoints(first.checkpoints).at(0), second);
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(again->changes,
            (std::vector<std::string>{"recipe.clip_gradients.norm: 0.0 becomes 1.0"}));
  ASSERT_TRUE(write_fork(local_files(), *again, second.checkpoints).ok());
  Recorder recorder;
  EXPECT_TRUE(run_job(second, recorder).ok());
}

TEST_F(ForkTest, AllowedChangesTrainAndOthersAreNamed) {
  run_parent();
  const std::vector<std::pair<std::string, Change>> allowed = {
      {"recipe.steps", [](TrainJob& j) { j.recipe.steps = 9; }},
      {"recipe.optimizer.learning_rate",
       [](TrainJob& j) { j.recipe.optimizer.learning_rate = 1e-3; }},
      {"recipe.optimizer.momentum", [](TrainJob& j) { j.recipe.optimizer.momentum = 0.5; }},
      {"recipe.optimizer.nesterov", [](TrainJob& j) { j.recipe.optimizer.nesterov = true; }},
      {"recipe.optimizer.weight_decay", [](TrainJob& j) { j.recipe.optimizer.weight_decay = 0.1; }},
      {"recipe.schedule.type", [](TrainJob& j) { j.recipe.schedule.type = "cosine"; }},
      {"recipe.clip_gradients.value", [](TrainJob& j) { j.recipe.clip_value = 1; }},
      {"recipe.ema.decay", [](TrainJob& j) { j.recipe.ema_decay = 0.5; }},
      {"recipe.keep_best.mode", [](TrainJob& j) { j.recipe.keep_best.mode = "max"; }},
      {"recipe.early_stopping.patience",
       [](TrainJob& j) { j.recipe.early_stopping.patience = 60; }},
      {"recipe.evaluate_every_steps", [](TrainJob& j) { j.recipe.evaluate_every_steps = 5; }},
      {"recipe.augmentation[0]",
       [](TrainJob& j) {
         j.recipe.augmentation.emplace_back();
         j.recipe.augmentation.back().kind = "random_horizontal_flip";
       }},
      {"model.layers", [](TrainJob& j) { j.model = image_model(0.1); }},
      {"model.loss.softmax_cross_entropy.label_smoothing: nothing becomes 0.1",
       [](TrainJob& j) {
         j.model.loss.op = "SoftmaxCrossEntropyLoss";
         j.model.loss.attributes.set("label_smoothing", 0.1);
       }},
  };
  for (const auto& [field, change] : allowed) {
    SCOPED_TRACE(field);
    const TrainJob job = child(change);
    const auto fork = plan_fork(checkpoint(), job);
    ASSERT_TRUE(fork.ok()) << fork.error().message;
    ASSERT_EQ(fork->changes.size(), 1u);
    EXPECT_TRUE(fork->changes[0].starts_with(field)) << fork->changes[0];
    fs::remove_all(job.checkpoints);
    fs::remove_all(job.model_output);
    ASSERT_TRUE(write_fork(local_files(), *fork, job.checkpoints).ok());
    Recorder recorder;
    const auto result = run_job(job, recorder);
    EXPECT_TRUE(result.ok()) << result.error().message;
    EXPECT_EQ(recorder.plan.first_step, kStep);
  }
  const std::vector<std::pair<std::string, Change>> refused = {
      {"spec.recipe.seed", [](TrainJob& j) { j.recipe.seed = 6; }},
      {"spec.recipe.batch_size", [](TrainJob& j) { j.recipe.batch_size = 8; }},
      {"spec.recipe.shuffle", [](TrainJob& j) { j.recipe.shuffle = false; }},
      {"spec.recipe.drop_last", [](TrainJob& j) { j.recipe.drop_last = false; }},
      {"spec.recipe.validation_split", [](TrainJob& j) { j.recipe.validation_split = 0.3; }},
      {"spec.recipe.precision", [](TrainJob& j) { j.recipe.precision = Precision::kBf16; }},
      {"spec.recipe.accumulate_steps", [](TrainJob& j) { j.recipe.accumulate_steps = 2; }},
      {"spec.recipe.optimizer.type", [](TrainJob& j) { j.recipe.optimizer.type = "rmsprop"; }},
      {"spec.recipe.optimizer.momentum", [](TrainJob& j) { j.recipe.optimizer.momentum = 0; }},
      {"spec.recipe.ema.decay", [](TrainJob& j) { j.recipe.ema_decay = 0; }},
      {"spec.recipe.lora.rank", [](TrainJob& j) { j.recipe.lora.rank = 2; }},
      {"spec.model.layers[0].conv.out_channels",
       [](TrainJob& j) { j.model.layers[0].attributes.set("out_channels", int64_t{9}); }},
      {"spec.model.layers[0].conv",
       [](TrainJob& j) {
         j.model.layers[0] = {"", "Dropout", {}, {}};
       }},
      {"spec.model.loss", [](TrainJob& j) { j.model.loss.op = "KullbackLeiblerDivergence"; }},
  };
  for (const auto& [field, change] : refused) {
    SCOPED_TRACE(field);
    const auto fork = plan_fork(checkpoint(), child(change));
    ASSERT_FALSE(fork.ok());
    EXPECT_EQ(fork.error().reason, "FORK_CHANGE_UNSUPPORTED");
    ASSERT_FALSE(fork.error().violations.empty());
    EXPECT_EQ(fork.error().violations[0].field, field);
  }
}

TEST_F(ForkTest, ChangedMetricsRestartBestModelAndPatience) {
  run_parent();
  const auto extra = [&](const Change& change) {
    const auto fork = plan_fork(checkpoint(), child(change));
    return fork.ok() ? fork->state.extra_json : fork.error().message;
  };
  EXPECT_NE(extra([](TrainJob&) {}).find("\"best\":{"), std::string::npos);
  EXPECT_NE(extra([](TrainJob& j) { j.recipe.steps = 30; }).find("\"best\":{"), std::string::npos);
  const std::string other = extra([](TrainJob& j) { j.recipe.keep_best.metric = "val/accuracy"; });
  EXPECT_EQ(other.find("\"best\":{\"step\""), std::string::npos) << other;
  const std::string patient = extra([](TrainJob& j) { j.recipe.early_stopping.patience = 9; });
  EXPECT_EQ(patient.find("\"stopping\":{\"any\""), std::string::npos) << patient;
}

TEST_F(ForkTest, MissingDamagedAndForeignCheckpointsAreDistinguished) {
  run_parent();
  const TrainJob same = child([](TrainJob&) {});
  EXPECT_EQ(plan_fork({parent_.checkpoints / "step-000000003", 3, false}, same).error().reason,
            "CHECKPOINT_NOT_FOUND");
  fs::resize_file(checkpoint().path / "weights.safetensors", 10);
  EXPECT_EQ(plan_fork(checkpoint(), same).error().reason, "CHECKPOINT_NOT_FOUND");
  TrainJob elsewhere = same;
  elsewhere.dataset = workspace_ / "other";
  fs::create_directories(elsewhere.dataset);
  std::ofstream(elsewhere.dataset / "digest") << "another";
  CheckpointFolder whole = list_checkpoints(parent_.checkpoints).at(0);
  const auto fork = plan_fork(whole, elsewhere);
  ASSERT_FALSE(fork.ok());
  EXPECT_EQ(fork.error().violations.at(0).field, "spec.dataset");
}

TEST_F(ForkTest, F18AFailingDiskLeavesACompleteForkOrNone) {
  run_parent();
  const TrainJob job = child([](TrainJob& j) { j.recipe.optimizer.learning_rate = 0.1; });
  const auto fork = plan_fork(checkpoint(), job);
  ASSERT_TRUE(fork.ok());
  using Mode = FaultyFiles::Mode;
  for (const Mode mode : {Mode::kBefore, Mode::kAfter, Mode::kCrash}) {
    for (int fail_at = 0;; ++fail_at) {
      fs::remove_all(job.checkpoints);
      FaultyFiles files(fail_at, mode);
      const auto written = write_fork(files, *fork, job.checkpoints);
      if (written.ok()) {
        EXPECT_GT(fail_at, 5);
        break;
      }
      for (const CheckpointFolder& c : list_checkpoints(job.checkpoints)) {
        EXPECT_TRUE(verify_checkpoint(c).ok()) << c.path;
      }
      EXPECT_TRUE(verify_checkpoint(checkpoint()).ok()) << "the parent's";
    }
  }
}

}  // namespace
}  // namespace trainyard
