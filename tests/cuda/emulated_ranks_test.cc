// Catches: an exchange that does not wait for its gradients, an update that does not wait for the
// exchange, memory that is reused too early, a recorded step of another shape; ranks that differ
// from the CPU's. The streams of several emulated devices run as late as possible (fake_cuda.h),
// each rank on its own thread.
#include <gtest/gtest.h>

#include <thread>

#include "src/job/train_job.h"
#include "src/runtime/cuda/backend.h"
#include "src/train/replicated_session.h"
#include "src/train/trainer.h"
#include "tests/cuda/fake_cuda.h"
#include "tests/cuda/many_buckets.h"
#include "tests/cuda/ranks.h"

namespace trainyard {
namespace {

using testing::bytes_of;
using testing::make_dataset;
using testing::ManyBuckets;
using testing::Recorder;
using testing::Workspace;

constexpr int kDevices = 4;

std::vector<RankDevice> gpus(int ranks) {
  testing::set_device_count(kDevices);
  return testing::connected(ranks, [](int r) { return std::make_shared<cuda::CudaBackend>(r); });
}

TEST(EmulatedRanks, TrainLikeTheCpus) {
  testing::expect_like_the_cpus([] { return gpus(2); }, 1);
}
TEST(EmulatedRanks, TrainShardedLikeTheCpus) {
  for (const int64_t accumulate_steps : {1, 2}) {
    testing::expect_like_the_cpus([] { return gpus(2); }, accumulate_steps, Shard::kOptimizer);
  }
}
TEST(EmulatedRanks, TrainWithASplitHeadLikeTheCpus) {
  for (const Shard shard : {Shard::kHead, Shard::kOptimizer | Shard::kHead}) {
    for (const int64_t accumulate_steps : {1, 2}) {
      testing::expect_like_the_cpus([] { return gpus(2); }, accumulate_steps, shard);
    }
  }
}
TEST(EmulatedRanks, TrainWithATiedHeadLikeTheCpus) {
  for (const Shard shard : {Shard::kHead, Shard::kHead | Shard::kMlp | Shard::kParameters}) {
    for (const int64_t accumulate_steps : {1, 2}) {
      testing::expect_like_the_cpus([] { return gpus(2); }, accumulate_steps, shard,
                                    testing::tie_the_head);
    }
  }
}
// On a GPU, Relu and the tanh form of Gelu become part of products (src/passes/fuse_products.h).
TEST(EmulatedRanks, TrainWithSplitPairsLikeTheCpus) {
  for (const char* activation : {"Relu", "Gelu"}) {
    SCOPED_TRACE(activation);
    const auto change = [=](TrainJob& job) { testing::split_pairs(job, activation); };
    testing::expect_like_the_cpus([] { return gpus(2); }, 1, Shard::kMlp, change);
    testing::expect_like_the_cpus([] { return gpus(2); }, 2,
                                  Shard::kOptimizer | Shard::kHead | Shard::kMlp, change);
  }
}
TEST(EmulatedRanks, TrainWithShardedParametersLikeTheCpus) {
  for (const Shard shard : {Shard::kParameters, Shard::kHead | Shard::kParameters}) {
    for (const int64_t accumulate_steps : {1, 2}) {
      testing::expect_like_the_cpus([] { return gpus(2); }, accumulate_steps, shard);
    }
  }
}
TEST(EmulatedRanks, TrainOverASampleOfTheClassesLikeTheCpus) {
  for (const int64_t accumulate_steps : {1, 2}) {
    testing::expect_like_the_cpus([] { return gpus(2); }, accumulate_steps, Shard::kNone,
                                  testing::sample_classes);
  }
}
TEST(EmulatedRanks, TrainLikeTheCpusByMicroBatches) {
  testing::expect_like_the_cpus([] { return gpus(2); }, 2);
}

TEST(EmulatedRanks, ResumeLikeNeverStopped) {
  const Workspace w;
  make_dataset(w, true, 60);
  const TrainJob whole = testing::rank_job(w, "whole"), parts = testing::rank_job(w, "parts");
  Recorder rw, first, second;
  testing::run_job(whole, gpus(2), rw);
  std::stop_source stop;
  first.stop_step = 5;
  first.stop = &stop;
  EXPECT_EQ(train(parts, gpus(2), local_files(), first, stop.get_token()).error().reason,
            "STOPPED");
  testing::run_job(parts, gpus(2), second);
  EXPECT_EQ(second.plan.first_step, 5);
  EXPECT_EQ(bytes_of(parts.model_output / "model.safetensors"),
            bytes_of(whole.model_output / "model.safetensors"));
}

// Without sharing, each rank would time the same problems at the same time.
TEST(EmulatedRanks, ShareTheirAlgorithms) {
  const Workspace w;
  make_dataset(w, true, 60);
  const auto run = [&](const std::string& name) {
    const auto algorithms = std::make_shared<Algorithms>(Algorithms::Options{w / "algorithms"});
    const std::vector<RankDevice> devices = gpus(2);
    for (const RankDevice& device : devices) device.backend->use_algorithms(algorithms);
    Recorder recorder;
    testing::run_job(testing::rank_job(w, name), devices, recorder);
    std::string timed;
    for (const std::string& line : recorder.lines) {
      if (line.starts_with("timed the algorithms of "))
        timed = line.substr(24, line.find(" pr") - 24);
    }
    const AlgorithmRecord used = algorithms->used();
    EXPECT_EQ(used.size(), 1u);
    return std::pair(timed, used);
  };
  const auto [timed, used] = run("first");
  EXPECT_EQ(timed, std::to_string(used.begin()->second.size()));
  EXPECT_EQ(run("second"), std::pair(std::string(), used));
  EXPECT_EQ(bytes_of(w / "first-model/model.safetensors"),
            bytes_of(w / "second-model/model.safetensors"));
}

/// Expects emulated GPUs to train like CPUs, and to give the same bits twice.
void expect_many_buckets_under_way(Shard shard) {
  const auto make = [&](std::vector<RankDevice> devices) {
    return ManyBuckets(std::move(devices), {}, shard);
  };
  ManyBuckets expected = make(testing::cpu_ranks(kDevices)), a = make(gpus(kDevices)),
              b = make(gpus(kDevices));
  EXPECT_GT(exchanges_of(ManyBuckets::build(0, kDevices, shard)).size(), 6u);
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

TEST(EmulatedRanks, ManyBucketsUnderWay) { expect_many_buckets_under_way(Shard::kNone); }
TEST(EmulatedRanks, ManyBucketsOfShardsUnderWay) {
  expect_many_buckets_under_way(Shard::kOptimizer);
}
TEST(EmulatedRanks, ManyGathersUnderWay) { expect_many_buckets_under_way(Shard::kParameters); }

// The losses are close but not equal, since whole state sums the norm in another order.
TEST(EmulatedRanks, ShardsFollowTheCurveOfWholeState) {
  ManyBuckets whole(gpus(kDevices)), sharded(gpus(kDevices), {}, Shard::kOptimizer),
      gathered(gpus(kDevices), {}, Shard::kParameters);
  const std::vector<float> losses = whole.losses(8);
  const std::vector<float> of_shards = sharded.losses(8);
  for (size_t s = 0; s < losses.size(); ++s) EXPECT_NEAR(of_shards[s], losses[s], 1e-6) << s;
  EXPECT_EQ(gathered.losses(8), of_shards);
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
