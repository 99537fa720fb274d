// Catches: whole networks that a GPU trains to something else than the CPU does. Needs a GPU; skips
// without one.
#include <gtest/gtest.h>

#include <cstdio>

#include "src/base/cores.h"
#include "src/runtime/cuda_module.h"
#include "src/train/device_check.h"
#include "tests/cuda/held_rows.h"
#include "tests/cuda/ranks.h"
#include "tests/cuda/tested_module.h"
#include "tests/cuda/travelling_rows.h"

namespace trainyard {
namespace {

TEST(CudaDevice, PassesItsCheck) {
  const auto cuda = open_cuda_backend(testing::tested_module(), 0);
  if (!cuda.ok()) GTEST_SKIP() << "no GPU: " << cuda.error().message;
  const auto cpu = make_cpu_backend(usable_cores());
  const DeviceCheck check = check_device(**cuda, *cpu, [](const DeviceCheckRow& row) {
    std::printf("%-26s loss %.1e, weights %.1e\n", row.network.c_str(), row.loss, row.weights);
    return true;
  });
  EXPECT_EQ(check.failure(), "");
}

TEST(CudaDevice, GathersTheBatchesThatTheHostWouldMake) {
  const auto cuda = open_cuda_backend(testing::tested_module(), 0);
  if (!cuda.ok()) GTEST_SKIP() << "no GPU: " << cuda.error().message;
  testing::expect_held_batches(**cuda);
}

TEST(CudaDevice, GathersTheBatchesThatTravelAsTheyAreStored) {
  const auto cuda = open_cuda_backend(testing::tested_module(), 0);
  if (!cuda.ok()) GTEST_SKIP() << "no GPU: " << cuda.error().message;
  testing::expect_travelling_batches(**cuda);
}

TEST(CudaDevice, EvaluatesTheRowsThatItHolds) {
  const auto cuda = open_cuda_backend(testing::tested_module(), 0);
  if (!cuda.ok()) GTEST_SKIP() << "no GPU: " << cuda.error().message;
  testing::expect_held_evaluations(**cuda);
}

TEST(CudaDevice, TwoTrainLikeTwoCpus) {
  const auto open = [](int r) { return open_cuda_backend(testing::tested_module(), r); };
  if (const auto second = open(1); !second.ok()) {
    GTEST_SKIP() << "no second GPU: " << second.error().message;
  }
  const auto two_gpus = [&] {
    return testing::connected(2, [&](int r) { return std::shared_ptr(open(r).value()); });
  };
  testing::expect_like_the_cpus(two_gpus, 1);
  testing::expect_like_the_cpus(two_gpus, 2);
  for (const Shard shard : {Shard::kOptimizer, Shard::kHead, Shard::kParameters}) {
    testing::expect_like_the_cpus(two_gpus, 1, shard);
  }
  testing::expect_like_the_cpus(two_gpus, 1, Shard::kMlp,
                                [](TrainJob& job) { testing::split_pairs(job, "Gelu"); });
  testing::expect_like_the_cpus(two_gpus, 1, Shard::kHead, testing::tie_the_head);
  for (const int64_t accumulate_steps : {1, 2}) {
    testing::expect_like_the_cpus(two_gpus, accumulate_steps, Shard::kNone,
                                  testing::sample_classes);
  }
}

}  // namespace
}  // namespace trainyard
