// Catches: a batch that a GPU makes of rows that it holds and that differs from the host's in a
// bit; samples of another rank's or micro-batch's rows; rows gathered before they have arrived, or
// over those that a step still reads (the emulated streams run as late as they may, fake_cuda.h);
// memory that the plan does not tell.
#include <gtest/gtest.h>

#include "src/runtime/cuda/backend.h"
#include "src/runtime/forwarding_backend.h"
#include "src/train/loop.h"
#include "src/train/programs.h"
#include "src/train/recipe_check.h"
#include "src/train/step_profile.h"
#include "tests/cuda/fake_cuda.h"
#include "tests/cuda/held_rows.h"
#include "tests/cuda/ranks.h"

namespace trainyard {
namespace {

using testing::bytes_of;
using testing::held_job;
using testing::Recorder;
using testing::run_job;
using testing::Workspace;

/// The same GPU, batches from the host.
class FromHost final : public ForwardingBackend {
 public:
  explicit FromHost(int ordinal)
      : ForwardingBackend(std::make_unique<cuda::CudaBackend>(ordinal)) {}
  bool holds_rows() const override { return false; }
};

constexpr int kDevices = 2;

std::vector<RankDevice> gpus(int ranks) {
  testing::set_device_count(kDevices);
  return testing::connected(ranks, [](int r) { return std::make_shared<cuda::CudaBackend>(r); });
}
std::vector<RankDevice> gpus_from_host(int ranks) {
  testing::set_device_count(kDevices);
  return testing::connected(ranks, [](int r) { return std::make_shared<FromHost>(r); });
}

TEST(HeldRows, BatchesAreTheHosts) {
  testing::set_device_count(kDevices);
  cuda::CudaBackend backend(0);
  testing::expect_held_batches(backend);
}

/// A job on GPUs that hold its rows, beside the same one that is brought its batches.
void expect_same_job(const Workspace& w, const std::function<TrainJob(const std::string&)>& job,
                     int ranks) {
  Recorder from_host, held;
  run_job(job("host"), gpus_from_host(ranks), from_host);
  run_job(job("held"), gpus(ranks), held);
  EXPECT_EQ(from_host.plan.dataset_bytes, 0);
  EXPECT_GT(held.plan.dataset_bytes, 0);
  ASSERT_FALSE(held.series["train/loss"].empty());
  for (const auto& [key, points] : from_host.series) {
    if (key == "train/samples_per_second" || key == "train/data_wait_share") continue;
    EXPECT_EQ(held.series[key], points) << key;
  }
  EXPECT_EQ(bytes_of(w / "held-model/model.safetensors"),
            bytes_of(w / "host-model/model.safetensors"));
}

TEST(HeldRows, ImagesTrainAsFromTheHost) {
  const Workspace w;
  testing::make_dataset(w, /*images=*/true, 60);
  for (const bool moved : {false, true}) {
    for (const auto& [ranks, parts] : {std::pair(1, 1), std::pair(1, 2), std::pair(2, 2)}) {
      SCOPED_TRACE(std::to_string(ranks) + " ranks, " + std::to_string(parts) + " parts");
      const auto job = [&, ranks = ranks, parts = parts](const std::string& name) {
        const std::string numbered =
            std::to_string(moved) + std::to_string(ranks) + std::to_string(parts) + name;
        TrainJob j = testing::rank_job(w, numbered);
        j.model_output = w / (name + "-model");
        std::filesystem::remove_all(j.model_output);
        j.recipe.accumulate_steps = parts;
        if (moved) j.recipe.augmentation = testing::moves();
        return j;
      };
      expect_same_job(w, job, ranks);
    }
  }
}

TEST(HeldRows, TablesTrainAsFromTheHost) {
  const Workspace w;
  testing::ingest_table(w, 60);
  expect_same_job(
      w, [&](const std::string& name) { return held_job(w, name, testing::dense_model()); }, 1);
}

TEST(HeldRows, RowsOfTextTrainAsFromTheHost) {
  const Workspace w;
  testing::ingest_rows_of_text(w, 60);
  expect_same_job(
      w, [&](const std::string& name) { return held_job(w, name, testing::bag_model()); }, 2);
}

TEST(HeldRows, StreamsTrainAsFromTheHost) {
  const Workspace w;
  const DatasetSchema schema = testing::ingest_stream(w, 700);
  const auto job = [&](const std::string& name) {
    TrainJob j = held_job(w, name, testing::next_token_model(schema.text.vocabulary_size()));
    j.recipe.context_length = 5;
    j.recipe.accumulate_steps = 2;
    return j;
  };
  expect_same_job(w, job, 2);
}

TEST(HeldRows, ResumeLikeNeverStopped) {
  const Workspace w;
  testing::make_dataset(w, true, 60);
  TrainJob whole = testing::rank_job(w, "whole"), parts = testing::rank_job(w, "parts");
  whole.recipe.augmentation = parts.recipe.augmentation = testing::moves();
  Recorder rw, first, second;
  run_job(whole, gpus(1), rw);
  std::stop_source stop;
  first.on_checkpoint = [&](int64_t) { stop.request_stop(); };
  EXPECT_EQ(train(parts, gpus(1), local_files(), first, stop.get_token()).error().reason,
            "STOPPED");
  run_job(parts, gpus(1), second);
  EXPECT_EQ(second.plan.first_step, 5);
  EXPECT_GT(second.plan.dataset_bytes, 0);
  EXPECT_EQ(bytes_of(parts.model_output / "model.safetensors"),
            bytes_of(whole.model_output / "model.safetensors"));
}

TEST(HeldRows, WhatTheHostMustMakeComesFromIt) {
  const Workspace w;
  testing::make_dataset(w, true, 60);
  TrainJob job = testing::rank_job(w, "rotated");
  job.recipe.augmentation = {{"random_rotation", {{"degrees", 10.0}}}};
  Recorder recorder;
  run_job(job, gpus(1), recorder);
  EXPECT_EQ(recorder.plan.dataset_bytes, 0);
}

TEST(HeldRows, AStepBringsItsSamplesAloneAndAllocatesNothing) {
  const Workspace w;
  testing::ingest_images(w, {1, 6, 8}, true, 50);
  TrainJob job = held_job(w, "counted", testing::dense_model());
  job.recipe.augmentation = testing::moves();
  const Dataset data = Dataset::open(w / "dataset", false).value();
  const DatasetSchema& schema = data.schema();
  const RunShape shape =
      check_recipe(job.recipe, job.model, schema, 1, {kCudaAlignment, Processor::kGpu}).value();
  const Split split = split_dataset(schema, 0, 0.2, 5);
  const Preprocessing p = fit_preprocessing(schema, data.train(), split.train);
  testing::set_device_count(kDevices);
  /// Works of the sixth step that are no part of its recording, by kind.
  const auto works = [&](bool held) {
    cuda::CudaBackend backend(0);
    Session session(
        compile_step(job.model, job.recipe, schema.interface(), {}, backend.traits()).value(),
        backend);
    session.initialise(5);
    const int64_t without = testing::device_bytes();
    EXPECT_EQ(held && hold_rows(job.recipe, shape, data, p, backend, session), held);
    EXPECT_EQ(testing::device_bytes() - without, held ? shape.held->bytes : 0) << "as planned";
    Loader loader(schema, p, data.train(), split.train,
                  loader_options(job.recipe, schema, p, split, 0, held));
    testing::WorkCounts before;
    int64_t bytes = 0;
    for (int64_t step = 0; step < 6; ++step) {
      const Batch& batch = loader.next();
      before = testing::submitted_works();
      if (step == 1) bytes = testing::device_bytes();
      session.run_step({batch.input_bytes(), batch.target_bytes(), step, 0.01f, batch.samples});
    }
    EXPECT_EQ(testing::device_bytes(), bytes);
    testing::WorkCounts counts = testing::submitted_works();
    for (size_t k = 0; k < counts.by_kind.size(); ++k) {
      counts.by_kind[k] -= before.by_kind[k] + testing::recorded_works().by_kind[k];
    }
    return counts;
  };
  const testing::WorkCounts from_host = works(false), held = works(true);
  EXPECT_EQ(from_host.of(testing::WorkKind::kKernel), 0);
  EXPECT_EQ(held.of(testing::WorkKind::kKernel), 1);
  EXPECT_EQ(held.of(testing::WorkKind::kCopy), from_host.of(testing::WorkKind::kCopy) - 1)
      << "samples, instead of input and target";
}

TEST(HeldRows, AreProfiledAsTheyTrain) {
  const Workspace w;
  testing::make_dataset(w, true, 60);
  testing::set_device_count(kDevices);
  cuda::CudaBackend backend(0);
  const auto profile =
      profile_job(testing::rank_job(w, "profile"), backend, {.steps_max = 3, .seconds = 0}, {});
  ASSERT_TRUE(profile.ok()) << profile.error().message;
  EXPECT_EQ(profile->steps, 3);
}

}  // namespace
}  // namespace trainyard
