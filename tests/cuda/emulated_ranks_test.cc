// Catches: an exchange that does not wait for its gradients, an update that does not wait for the
// exchange, memory that is used again too early, a recorded step of another shape; ranks that
// differ from the CPU's. Streams of several emulated devices run as late as anybody may let them
// (fake_cuda.h), each rank on its own thread.
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "src/autodiff/differentiate.h"
#include "src/models/model_spec.h"
#include "src/optim/all_reduce.h"
#include "src/runtime/cuda/backend.h"
#include "src/train/replicated_session.h"
#include "tests/cuda/fake_cuda.h"
#include "tests/engine/train_support.h"

namespace trainyard {
namespace {

using testing::bytes_of;
using testing::make_dataset;
using testing::Recorder;
using testing::Workspace;

constexpr int kDevices = 4;

std::vector<RankDevice> connected(int ranks,
                                  const std::function<std::shared_ptr<Backend>(int)>& make) {
  std::vector<RankDevice> devices;
  std::vector<Backend*> backends;
  for (int r = 0; r < ranks; ++r) {
    devices.push_back({"devices/gpu-" + std::to_string(r), make(r)});
    backends.push_back(devices.back().backend.get());
  }
  if (ranks > 1) backends.front()->connect(backends).value();
  return devices;
}
std::vector<RankDevice> gpus(int ranks) {
  testing::set_device_count(kDevices);
  return connected(ranks, [](int r) { return std::make_shared<cuda::CudaBackend>(r); });
}
std::vector<RankDevice> cpus(int ranks) {
  return connected(ranks, [](int) { return std::shared_ptr<Backend>(make_cpu_backend(1)); });
}

TrainJob small_job(const Workspace& w, const std::string& name) {
  TrainJob job;
  job.model = testing::image_model();  // with batch normalisation and dropout
  job.recipe.steps = 8;
  job.recipe.batch_size = 16;
  job.recipe.optimizer.type = "sgd";
  job.recipe.optimizer.momentum = 0.9;
  job.recipe.optimizer.learning_rate = 0.02;
  job.recipe.clip_norm = 1;
  job.recipe.metrics = {"gradient_norm"};
  job.recipe.seed = 5;
  job.recipe.validation_split = 0.2;
  job.recipe.evaluate_every_steps = 4;
  job.recipe.checkpoint_every_steps = 5;
  job.dataset = w / "dataset";
  job.checkpoints = w / (name + "-checkpoints");
  job.model_output = w / (name + "-model");
  return job;
}

void run(const TrainJob& job, std::vector<RankDevice> devices, Recorder& recorder) {
  const auto result = train(job, devices, local_files(), recorder, {});
  ASSERT_TRUE(result.ok()) << result.error().message;
}

void expect_like_the_cpu(const std::function<void(TrainJob&)>& change) {
  const Workspace w;
  make_dataset(w, /*images=*/true, 60);
  TrainJob expected = small_job(w, "cpu"), job = small_job(w, "gpu");
  change(expected);
  change(job);
  Recorder of_cpus, of_gpus;
  run(expected, cpus(2), of_cpus);
  run(job, gpus(2), of_gpus);
  for (const char* key : {"train/loss", "train/gradient_norm", "val/loss"}) {
    ASSERT_EQ(of_cpus.series[key].size(), of_gpus.series[key].size());
    ASSERT_FALSE(of_gpus.series[key].empty());
    for (const auto& [step, value] : of_cpus.series[key]) {
      EXPECT_NEAR(of_gpus.series[key][step], value, 1e-4 * value) << key << " of step " << step;
    }
  }
}

TEST(EmulatedRanks, TrainLikeTheCpus) {
  expect_like_the_cpu([](TrainJob&) {});
}
TEST(EmulatedRanks, TrainLikeTheCpusByMicroBatches) {
  expect_like_the_cpu([](TrainJob& job) { job.recipe.accumulate_steps = 2; });
}

TEST(EmulatedRanks, ResumeLikeNeverStopped) {
  const Workspace w;
  make_dataset(w, true, 60);
  const TrainJob whole = small_job(w, "whole"), parts = small_job(w, "parts");
  Recorder rw, first, second;
  run(whole, gpus(2), rw);
  std::stop_source stop;
  first.on_checkpoint = [&](int64_t) { stop.request_stop(); };
  EXPECT_EQ(train(parts, gpus(2), local_files(), first, stop.get_token()).error().reason,
            "STOPPED");
  run(parts, gpus(2), second);
  EXPECT_EQ(second.plan.first_step, 5);
  EXPECT_EQ(bytes_of(parts.model_output / "model.safetensors"),
            bytes_of(whole.model_output / "model.safetensors"));
}

/// Ten layers that are exchanged in buckets of a few bytes, two at a time.
struct ManyBuckets {
  static constexpr int64_t kRows = 4, kColumns = 6;

  explicit ManyBuckets(std::vector<RankDevice> devices, const StepLimits& limits = {}) {
    const int64_t ranks = std::ssize(devices);
    std::vector<RunPrograms> programs;
    for (int64_t r = 0; r < ranks; ++r) programs.push_back(build());
    session =
        std::make_unique<ReplicatedSession>(std::move(programs), std::move(devices), 1, limits);
    session->initialise(7);
    for (int64_t i = 0; i < ranks * kRows * kColumns; ++i) {
      input.push_back(static_cast<float>(std::sin(static_cast<double>(i))));
    }
    for (int64_t i = 0; i < ranks * kRows; ++i) target.push_back(static_cast<int32_t>(i % 3));
  }

  static RunPrograms build() {
    ModelSpec spec;
    for (int i = 0; i < 9; ++i) {
      spec.layers.push_back({"", "Gemm", {}, {{"units", int64_t{10 + i}}}});
      spec.layers.push_back({"", "Tanh", {}, {}});
    }
    spec.layers.push_back({"", "Gemm", {}, {}});
    ModelInterface interface;
    interface.input = {kColumns};
    interface.outputs = 3;
    BuildOptions options;
    options.batch_size = kRows;
    Model model = build_model(spec, interface, options).value();
    const auto gradients = append_all_reduce(model.graph, differentiate(model.graph, model.loss),
                                             {.first_bytes = 64, .bytes = 600, .in_flight = 2});
    OptimizerSpec optimizer;
    optimizer.momentum = 0.9;
    const UpdateInputs inputs = append_optimizer(model.graph, optimizer, gradients, model.step);
    RunPrograms programs;
    BoundProgram& train = programs.train;
    train.input = model.input;
    train.target = model.target;
    train.loss = model.loss;
    train.output = model.output;
    train.learning_rate = inputs.learning_rate;
    train.batch_size = kRows;
    train.program = compile(std::move(model.graph), {});
    return programs;
  }

  /// Steps run ahead of their results, as in the loop.
  std::vector<float> losses(int64_t steps) {
    std::vector<float> all;
    for (int64_t s = 0; s < steps; ++s) {
      session->begin_step(
          {std::as_bytes(std::span(input)), std::as_bytes(std::span(target)), s, 0.05f});
      if (s > 0) all.push_back(session->finish_step().loss);
    }
    all.push_back(session->finish_step().loss);
    return all;
  }

  std::unique_ptr<ReplicatedSession> session;
  std::vector<float> input;
  std::vector<int32_t> target;
};

TEST(EmulatedRanks, ManyBucketsUnderWay) {
  ManyBuckets expected(cpus(kDevices)), a(gpus(kDevices)), b(gpus(kDevices));
  EXPECT_GT(exchanges_of(ManyBuckets::build()).size(), 6u);
  const std::vector<float> losses = expected.losses(8), of_a = a.losses(8);
  for (size_t s = 0; s < losses.size(); ++s) EXPECT_NEAR(of_a[s], losses[s], 1e-5) << s;
  EXPECT_EQ(of_a, b.losses(8));
  const Snapshot weights = expected.session->snapshot(), of_gpus = a.session->snapshot();
  for (size_t i = 0; i < weights.storage.size(); ++i) {
    const auto* x = reinterpret_cast<const float*>(weights.storage[i].data());
    const auto* y = reinterpret_cast<const float*>(of_gpus.storage[i].data());
    for (size_t k = 0; k < weights.storage[i].size() / sizeof(float); ++k) {
      ASSERT_NEAR(y[k], x[k], 1e-5) << i << ", element " << k;
    }
  }
  EXPECT_EQ(of_gpus.storage, b.session->snapshot().storage);
}

constexpr StepLimits kSoon{.first_s = 2, .least_s = 2, .times = 1, .grace_s = 0.3};

TEST(EmulatedRanks, TheFirstThatStopsIsNamed) {
  ManyBuckets job(gpus(3), kSoon);
  job.losses(4);
  testing::stall_device(1, 150);
  std::string text;
  try {
    for (int i = 0; i < 8; ++i) job.losses(1);
  } catch (const RankStopped& e) {
    text = e.what();
  }
  EXPECT_NE(text.find("rank 1 (devices/gpu-1) stopped in step "), std::string::npos) << text;
  EXPECT_NE(text.find(" before all_reduce_"), std::string::npos) << text;
  testing::release_device();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
}

TEST(EmulatedRanks, AnErrorOfNcclEndsTheStep) {
  ManyBuckets job(gpus(2), kSoon);
  job.losses(1);
  testing::stall_device(1, 100);
  testing::set_nccl_async_error(ncclRemoteError);
  std::string text;
  try {
    for (int i = 0; i < 8; ++i) job.losses(1);
  } catch (const CudaError& e) {
    text = e.what();
  }
  EXPECT_EQ(
      text,
      "rank 0 (devices/gpu-0): exchanging gradients on GPU 0: an error of NCCL (NCCL error 6)");
  testing::set_nccl_async_error(0);
  testing::release_device();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
}

}  // namespace
}  // namespace trainyard
