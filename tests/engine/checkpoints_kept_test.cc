// The tests catch training that waits for a disk when it need not, or does not wait when it must; a
// checkpoint that is reported before it is durable or before the metrics up to it; a retention rule
// that removes a checkpoint that it should keep.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "src/checkpoint/checkpoint.h"
#include "src/job/checkpoint_pace.h"
#include "src/job/train_job.h"
#include "src/train/trainer.h"
#include "tests/data/unsynced_files.h"
#include "tests/engine/run_job.h"
#include "tests/engine/train_support.h"
#include "tests/server/fake_clock.h"

namespace trainyard {
namespace {

using server::FakeClock;
using testing::bytes_of;
using testing::make_dataset;
using testing::Recorder;
using testing::Workspace;

/// A disk that blocks the first checkpoint until unblock() is called.
class BlockedFiles final : public Files {
 public:
  Status write_file(const std::filesystem::path& path,
                    std::span<const std::span<const std::byte>> parts) override {
    return files_.write_file(path, parts);
  }
  Result<std::unique_ptr<FileFiller>> create_file(const std::filesystem::path& path,
                                                  int64_t bytes) override {
    return files_.create_file(path, bytes);
  }
  Status rename_durable(const std::filesystem::path& from,
                        const std::filesystem::path& to) override {
    std::unique_lock lock(mu_);
    waits_ = true;
    changed_.notify_all();
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(60), [this] { return unblocked_; }))
        << "training waits for the checkpoint";
    return fails ? Status(make_error(ErrorCode::kResourceExhausted, "STORAGE_FULL", "full"))
                 : files_.rename_durable(from, to);
  }
  Status sync_directory(const std::filesystem::path&) override { return {}; }
  Status create_directories(const std::filesystem::path& directory) override {
    return files_.create_directories(directory);
  }
  Status link_file(const std::filesystem::path& from, const std::filesystem::path& to) override {
    return files_.link_file(from, to);
  }
  Status remove_all(const std::filesystem::path& path) override { return files_.remove_all(path); }

  void unblock() {
    const std::lock_guard lock(mu_);
    unblocked_ = true;
    changed_.notify_all();
  }
  /// Waits until a checkpoint is blocked.
  void wait_until_blocked() {
    std::unique_lock lock(mu_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(60), [this] { return waits_; }));
  }
  std::atomic<bool> fails = false;

 private:
  UnsyncedFiles files_;
  std::mutex mu_;
  std::condition_variable changed_;
  bool waits_ = false;
  bool unblocked_ = false;
};

/// Returns a job of 12 steps without evaluations, so that each progress report is a step.
TrainJob plain_job(const Workspace& w, const std::string& name, int64_t between) {
  TrainJob job;
  job.model.preset = "mlp";
  job.model.parameters.set("hidden", std::vector<int64_t>{8});
  job.recipe.steps = 12;
  job.recipe.batch_size = 8;
  job.recipe.optimizer.type = "adam";
  job.recipe.optimizer.learning_rate = 0.01;
  job.recipe.checkpoint_every_steps = between;
  job.dataset = w / "dataset";
  job.checkpoints = w / (name + "-checkpoints");
  job.model_output = w / (name + "-model");
  return job;
}

Result<TrainResult> run_on_files(const TrainJob& job, Recorder& recorder, Files& files,
                                 std::stop_token stop = {}, const Clock& clock = system_clock()) {
  return testing::run_job(job, recorder, std::move(stop), files, clock);
}

std::vector<int64_t> steps_kept(const TrainJob& job) {
  std::vector<int64_t> steps;
  for (const CheckpointFolder& c : list_checkpoints(job.checkpoints)) steps.push_back(c.step);
  return steps;
}

TEST(CheckpointBeside, StepsContinueWhileACheckpointIsWritten) {
  const Workspace w;
  make_dataset(w, /*images=*/false, 64);
  UnsyncedFiles quick;
  Recorder whole;
  ASSERT_TRUE(run_on_files(plain_job(w, "whole", 5), whole, quick).ok());
  BlockedFiles blocked;
  Recorder r;
  size_t losses_before = 0;
  r.on_progress = [&](int64_t signs) {
    if (signs != 9) return;
    EXPECT_TRUE(r.saved.empty()) << "reported before it was durable";
    blocked.unblock();
  };
  r.on_checkpoint = [&](int64_t step) {
    if (step == 5) losses_before = r.series["train/loss"].size();
  };
  const TrainJob job = plain_job(w, "held", 5);
  const auto result = run_on_files(job, r, blocked);
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(r.saved, (std::vector<int64_t>{5, 10, 12}));
  EXPECT_GE(losses_before, 5u) << "the metrics up to a checkpoint come before it";
  EXPECT_EQ(bytes_of(job.model_output / "model.safetensors"),
            bytes_of(w / "whole-model/model.safetensors"));
  for (const char* step : {"step-000000010", "step-000000012"}) {
    for (const char* file : {"weights.safetensors", "optimizer.safetensors"}) {
      EXPECT_EQ(bytes_of(job.checkpoints / step / file),
                bytes_of(w / "whole-checkpoints" / step / file))
          << "a checkpoint holds its own step's values, not later ones";
    }
  }
}

/// Runs on a blocked disk until no further step is done. Returns the number of steps then, and
/// unblocks the disk.
int64_t steps_behind_a_disk_that_hangs(const TrainJob& job, Recorder& r, BlockedFiles& blocked) {
  std::atomic<int64_t> signs = 0;
  std::atomic<int64_t> at_let_go = -1;
  r.on_progress = [&](int64_t n) { signs = n; };
  std::jthread disk([&] {
    blocked.wait_until_blocked();
    for (int64_t seen = -1; seen != signs;) {
      seen = signs;
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
    }
    at_let_go = signs.load();
    blocked.unblock();
  });
  const auto result = run_on_files(job, r, blocked);
  EXPECT_TRUE(result.ok()) << result.error().message;
  disk.join();
  return at_let_go;
}

// The run reports no progress meanwhile: a write that never ends counts as a stall
// (docs/decisions/lost-and-stalled-workers.md).
TEST(CheckpointBeside, TheNextCheckpointWaitsForTheOneBeingWritten) {
  const Workspace w;
  make_dataset(w, /*images=*/false, 64);
  BlockedFiles blocked;
  Recorder r;
  EXPECT_EQ(steps_behind_a_disk_that_hangs(plain_job(w, "a", 3), r, blocked), 6);
  EXPECT_EQ(r.saved, (std::vector<int64_t>{3, 6, 9, 12}));
}

TEST(CheckpointBeside, TheEndWaitsForTheCheckpointBeingWritten) {
  const Workspace w;
  make_dataset(w, /*images=*/false, 64);
  BlockedFiles blocked;
  Recorder r;
  const TrainJob job = plain_job(w, "a", 12);
  EXPECT_EQ(steps_behind_a_disk_that_hangs(job, r, blocked), 12);
  EXPECT_EQ(r.saved, (std::vector<int64_t>{12}));
}

TEST(CheckpointBeside, AFailureIsReportedAndTrainingContinues) {
  const Workspace w;
  make_dataset(w, /*images=*/false, 64);
  BlockedFiles blocked;
  blocked.fails = true;
  Recorder r;
  r.on_progress = [&](int64_t signs) {
    if (signs == 9) blocked.unblock();
    if (signs == 11) blocked.fails = false;
  };
  const TrainJob job = plain_job(w, "a", 5);
  ASSERT_TRUE(run_on_files(job, r, blocked).ok());
  ASSERT_FALSE(r.failed.empty());
  EXPECT_EQ(r.failed[0].first, 5);
  EXPECT_EQ(r.failed[0].second.reason, "STORAGE_FULL");
  EXPECT_EQ(r.saved.back(), 12);
}

TEST(CheckpointBeside, AStopSavesTheStepWhereItStops) {
  const Workspace w;
  make_dataset(w, /*images=*/false, 64);
  BlockedFiles blocked;
  Recorder r;
  std::stop_source stop;
  r.on_progress = [&](int64_t signs) {
    if (signs != 7) return;
    stop.request_stop();
    blocked.unblock();
  };
  const TrainJob job = plain_job(w, "a", 5);
  EXPECT_EQ(run_on_files(job, r, blocked, stop.get_token()).error().reason, "STOPPED");
  ASSERT_EQ(r.saved.size(), 2u);
  EXPECT_EQ(r.saved[0], 5);
  EXPECT_GE(r.saved[1], 7);
  EXPECT_EQ(steps_kept(job).front(), r.saved[1]);
}

TEST(CheckpointBeside, AFaultWaitsForTheCheckpointBeingWrittenWhichCounts) {
  const Workspace w;
  make_dataset(w, /*images=*/false, 64);
  BlockedFiles blocked;
  Recorder r;
  struct Fault {};
  std::jthread disk;
  r.on_progress = [&](int64_t signs) {
    if (signs != 7) return;
    disk = std::jthread([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      blocked.unblock();
    });
    throw Fault();
  };
  const TrainJob job = plain_job(w, "a", 5);
  EXPECT_THROW((void)run_on_files(job, r, blocked), Fault);
  EXPECT_EQ(r.saved, (std::vector<int64_t>{5}));
  EXPECT_EQ(steps_kept(job), (std::vector<int64_t>{5}));
}

TEST(CheckpointBeside, ANonFiniteLossNamesTheCheckpointBeingWritten) {
  const Workspace w;
  make_dataset(w, /*images=*/false, 64);
  TrainJob job = plain_job(w, "a", 1);
  job.recipe.optimizer = {};
  job.recipe.optimizer.learning_rate = 100;
  job.recipe.steps = 400;
  UnsyncedFiles quick;
  Recorder first;
  const auto diverged = run_on_files(job, first, quick);
  ASSERT_FALSE(diverged.ok());
  ASSERT_GE(first.saved.size(), 2u);
  const int64_t last = first.saved.back();  // the loss of the next step is not finite
  std::filesystem::remove_all(job.checkpoints);
  job.recipe.checkpoint_every_steps = last;
  BlockedFiles blocked;
  Recorder r;
  std::jthread disk([&] {
    blocked.wait_until_blocked();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    blocked.unblock();
  });
  const auto result = run_on_files(job, r, blocked);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().reason, "LOSS_NOT_FINITE");
  EXPECT_EQ(r.saved, (std::vector<int64_t>{last}));
  EXPECT_EQ(result.error().metadata.at("last_checkpoint_step"), std::to_string(last));
}

TEST(CheckpointsKept, EveryNthStaysBesideTheNewest) {
  const Workspace w;
  make_dataset(w, /*images=*/false, 64);
  TrainJob job = plain_job(w, "a", 1);
  job.recipe.keep_checkpoints = 1;
  job.recipe.keep_checkpoints_every_steps = 5;
  UnsyncedFiles files;
  Recorder r;
  ASSERT_TRUE(run_on_files(job, r, files).ok());
  EXPECT_EQ(steps_kept(job), (std::vector<int64_t>{12, 10, 5}));
}

TEST(CheckpointPace, IntervalIsAHundredTimesTheCostOfACheckpoint) {
  constexpr int64_t kSecond = 1'000'000;
  CheckpointPace pace(int64_t{100} << 20, 0);
  const int64_t most = checkpoint_interval_max_us(int64_t{100} << 20);
  EXPECT_GT(most, 100 * kSecond);
  EXPECT_LT(most, 200 * kSecond);
  EXPECT_FALSE(pace.due(most - 1, false)) << "nothing is measured yet";
  EXPECT_TRUE(pace.due(most, false));
  const int64_t begin = most + 7;
  pace.begin(begin);
  pace.add_cost(kSecond / 2);
  EXPECT_FALSE(pace.due(begin + 50 * kSecond - 1, false));
  EXPECT_TRUE(pace.due(begin + 50 * kSecond, false));
  EXPECT_FALSE(pace.due(begin + most - 1, /*writing=*/true)) << "steps would wait for the disk";
  EXPECT_TRUE(pace.due(begin + most, /*writing=*/true));
  pace.add_cost(kSecond / 10);
  EXPECT_FALSE(pace.due(begin + 30 * kSecond - 1, false)) << "a cheap one counts by half";
  EXPECT_TRUE(pace.due(begin + 30 * kSecond, false));
  pace.add_cost(0);
  for (int i = 0; i < 10; ++i) pace.add_cost(0);
  EXPECT_FALSE(pace.due(begin + kCheckpointIntervalMinUs - 1, false));
  EXPECT_TRUE(pace.due(begin + kCheckpointIntervalMinUs, false));
  pace.add_cost(100 * kSecond);
  EXPECT_FALSE(pace.due(begin + most - 1, false));
  EXPECT_TRUE(pace.due(begin + most, false)) << "a plan has told so";
}

TEST(CheckpointPace, IsBoundedForEveryState) {
  EXPECT_EQ(checkpoint_interval_max_us(0), kCheckpointIntervalMinUs);
  int64_t last = 0;
  for (int64_t bytes = 1; bytes < int64_t{1} << 60; bytes *= 4) {
    const int64_t most = checkpoint_interval_max_us(bytes);
    EXPECT_GE(most, last);
    EXPECT_LE(most, 600'000'000);
    last = most;
  }
  EXPECT_EQ(last, 600'000'000);
}

// An epoch has 8 steps.
TEST(CheckpointsByTime, AreWrittenWhenTheyAreDueAndAtTheEnd) {
  const Workspace w;
  make_dataset(w, /*images=*/false, 64);
  UnsyncedFiles files;
  FakeClock clock;
  Recorder r;
  r.on_progress = [&](int64_t) { clock.pass(1'250'000); };
  const TrainJob job = plain_job(w, "timed", 0);
  ASSERT_TRUE(run_on_files(job, r, files, {}, clock).ok());
  EXPECT_EQ(r.plan.checkpoints.lost_seconds_max, 5);
  // Step 5 begins at 5 s and is saved at 6.25 s; step 10 begins at 11.25 s.
  EXPECT_EQ(r.saved, (std::vector<int64_t>{5, 10, 12}));

  FakeClock still;
  Recorder s;
  const TrainJob other = plain_job(w, "still", 0);
  ASSERT_TRUE(run_on_files(other, s, files, {}, still).ok());
  EXPECT_EQ(s.saved, (std::vector<int64_t>{12})) << "no epoch's end asks for one";
  for (const char* file : {"weights.safetensors", "optimizer.safetensors"}) {
    EXPECT_EQ(bytes_of(job.checkpoints / "step-000000012" / file),
              bytes_of(other.checkpoints / "step-000000012" / file))
        << "when they are written changes no bit";
  }
}

TEST(CheckpointsByTime, StepsOfTheRecipeAreKeptExactly) {
  const Workspace w;
  make_dataset(w, /*images=*/false, 64);
  UnsyncedFiles files;
  FakeClock clock;
  Recorder r;
  r.on_progress = [&](int64_t) { clock.pass(60'000'000); };
  ASSERT_TRUE(run_on_files(plain_job(w, "a", 5), r, files, {}, clock).ok());
  EXPECT_EQ(r.saved, (std::vector<int64_t>{5, 10, 12})) << "no time adds one";

  TrainJob keeps = plain_job(w, "b", 0);
  keeps.recipe.keep_checkpoints = 1;
  keeps.recipe.keep_checkpoints_every_steps = 5;
  FakeClock still;
  Recorder s;
  ASSERT_TRUE(run_on_files(keeps, s, files, {}, still).ok());
  EXPECT_EQ(s.saved, (std::vector<int64_t>{5, 10, 12})) << "what stays is written";
  EXPECT_EQ(steps_kept(keeps), (std::vector<int64_t>{12, 10, 5}));
}

// A slow write blocks the steps only once the next checkpoint of the plan is due.
TEST(CheckpointsByTime, TrainingWaitsForASlowDiskOnlyAtTheEndOfTheInterval) {
  const Workspace w;
  make_dataset(w, /*images=*/false, 64);
  BlockedFiles blocked;
  FakeClock clock;
  Recorder r;
  r.on_progress = [&](int64_t signs) {
    clock.pass(signs == 1 ? 5'000'000 : 500'000);
    if (signs == 11) blocked.unblock();  // 4.5 s after the first write began
  };
  ASSERT_TRUE(run_on_files(plain_job(w, "a", 0), r, blocked, {}, clock).ok());
  EXPECT_EQ(r.saved, (std::vector<int64_t>{2, 12}));
}

// Evaluations are at even steps and checkpoints at multiples of 7, so the best step gets a
// checkpoint of its own.
TEST(CheckpointsKept, TheBestStaysAndIsWrittenAfterItsEvaluation) {
  const Workspace w;
  make_dataset(w, /*images=*/false, 64);
  TrainJob job = plain_job(w, "a", 7);
  job.recipe.validation_split = 0.25;
  job.recipe.evaluate_every_steps = 2;
  job.recipe.keep_checkpoints = 1;
  job.recipe.keep_best.metric = "val/loss";
  job.recipe.keep_best.mode = "max";  // the best step is an early one, since the loss falls
  UnsyncedFiles files;
  Recorder without;
  ASSERT_TRUE(run_on_files(job, without, files).ok());
  EXPECT_EQ(without.saved, (std::vector<int64_t>{7, 12}));
  EXPECT_EQ(steps_kept(job), (std::vector<int64_t>{12}));
  const auto& losses = without.series["val/loss"];
  const auto best =
      std::max_element(losses.begin(), losses.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  ASSERT_LT(best->first, 10) << "the test needs a best one that is not among the newest";

  TrainJob keeps = job;
  keeps.checkpoints = w / "b-checkpoints";
  keeps.model_output = w / "b-model";
  keeps.recipe.keep_best_checkpoint = true;
  Recorder with;
  ASSERT_TRUE(run_on_files(keeps, with, files).ok());
  EXPECT_EQ(steps_kept(keeps), (std::vector<int64_t>{12, best->first}));
  EXPECT_EQ(bytes_of(keeps.model_output / "model.safetensors"),
            bytes_of(job.model_output / "model.safetensors"));
}

}  // namespace
}  // namespace trainyard
