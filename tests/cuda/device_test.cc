// Catches: whole networks whose training on a GPU differs from that on the CPU. Needs a GPU; skips
// without one.
#include <gtest/gtest.h>

#include <cstdio>
#include <memory>

#include "src/base/cores.h"
#include "src/calibration/device_check.h"
#include "src/job/train_job.h"
#include "src/runtime/cuda_module.h"
#include "src/runtime/join.h"
#include "tests/cuda/many_buckets.h"
#include "tests/cuda/ranks.h"
#include "tests/cuda/resident_rows.h"
#include "tests/cuda/staged_rows.h"
#include "tests/cuda/tested_module.h"
#include "tests/engine/peers_support.h"
#include "tests/support/must_end.h"

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
  testing::expect_resident_batches(**cuda);
}

TEST(CudaDevice, GathersTheBatchesThatTravelAsTheyAreStored) {
  const auto cuda = open_cuda_backend(testing::tested_module(), 0);
  if (!cuda.ok()) GTEST_SKIP() << "no GPU: " << cuda.error().message;
  testing::expect_staged_batches(**cuda);
}

TEST(CudaDevice, EvaluatesTheRowsThatItHolds) {
  const auto cuda = open_cuda_backend(testing::tested_module(), 0);
  if (!cuda.ok()) GTEST_SKIP() << "no GPU: " << cuda.error().message;
  testing::expect_resident_evaluations(**cuda);
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

// NCCL ends no communicator while recordings with its exchanges exist.
TEST(CudaDevice, TwoEndAlthoughTheirStepsAreRecorded) {
  const auto open = [](int r) { return open_cuda_backend(testing::tested_module(), r); };
  if (const auto second = open(1); !second.ok()) {
    GTEST_SKIP() << "no second GPU: " << second.error().message;
  }
  for (const bool aborts : {true, false}) {
    auto devices = testing::connected(2, [&](int r) { return std::shared_ptr(open(r).value()); });
    auto job = std::make_unique<testing::ManyBuckets>(devices);
    job->losses(4);  // the second step records
    must_end(aborts ? "an aborted job" : "a job", [&] {
      for (const RankDevice& device : devices) {
        if (aborts) device.backend->communicator()->abort();
      }
      job.reset();
      devices.clear();
    });
  }
}

/// This process's only GPU, connected with those of the other processes.
Result<std::vector<RankDevice>> join_one(const std::shared_ptr<Peers>& peers) {
  return join_devices(peers, [&]() -> Result<std::vector<RankDevice>> {
    const auto gpu = static_cast<int>(peers->index());
    ASSIGN_OR_RETURN(std::unique_ptr<Backend> cuda,
                     open_cuda_backend(testing::tested_module(), gpu));
    std::vector<RankDevice> devices;
    devices.push_back({"devices/gpu-" + std::to_string(gpu), std::move(cuda)});
    return devices;
  });
}

// NCCL's non-blocking start from an id, and its abort: all that can be tested of several nodes with
// one GPU.
TEST(CudaNodes, OneStartsByAnIdAndIsAborted) {
  if (const auto cuda = open_cuda_backend(testing::tested_module(), 0); !cuda.ok()) {
    GTEST_SKIP() << "no GPU: " << cuda.error().message;
  }
  for (const bool aborts : {false, true, true}) {
    const auto peers = testing::connect_peers(1);
    const auto devices = join_one(peers.front());
    ASSERT_TRUE(devices.ok()) << devices.error().message;
    Communicator& connection = *devices->front().backend->communicator();
    std::printf("%s\n", connection.about().c_str());
    EXPECT_NO_THROW(connection.check());
    EXPECT_EQ(connection.peers(), peers.front().get());
    if (aborts) connection.abort();
  }
}

// A rank whose peers do not start ends at its time limit, and the GPU remains usable.
TEST(CudaNodes, AStartThatNobodyElseComesToEndsByItsLimit) {
  const auto cuda = open_cuda_backend(testing::tested_module(), 0);
  if (!cuda.ok()) GTEST_SKIP() << "no GPU: " << cuda.error().message;
  const auto peers = testing::connect_peers(1);
  ProcessGroup group{.peers = peers.front(),
                     .first_rank = 0,
                     .ranks = 2,
                     .address = peers.front()->address(),
                     .id = {},
                     .limit = std::chrono::seconds(5),
                     .stop = {}};
  group.id = (*cuda)->prepare_join(group).value();
  Backend* const one = cuda->get();
  const Status joined = one->join({&one, 1}, group);
  ASSERT_FALSE(joined.ok());
  EXPECT_EQ(joined.error().reason, "RANKS_MISSING") << joined.error().message;
  const auto again = join_one(testing::connect_peers(1).front());
  EXPECT_TRUE(again.ok()) << again.error().message;
}

// Two processes on one host act as two nodes. With NCCL_P2P_DISABLE=1 and NCCL_SHM_DISABLE=1, NCCL
// uses sockets, as between hosts.
TEST(CudaNodes, TwoProcessesTrainTheBitsOfTwoLocalGpus) {
  const auto open = [](int r) { return open_cuda_backend(testing::tested_module(), r); };
  if (const auto second = open(1); !second.ok()) {
    GTEST_SKIP() << "no second GPU: " << second.error().message;
  }
  for (const Shard shard : {Shard::kNone, Shard::kOptimizer, Shard::kParameters}) {
    const testing::Workspace w;
    testing::make_dataset(w, /*images=*/true, 60);
    const auto job = [&](const std::string& name) {
      TrainJob named = testing::rank_job(w, name);
      named.recipe.shard = shard;
      return named;
    };
    testing::Recorder local, nodes[2];
    testing::run_job(job("local"),
                     testing::connected(2, [&](int r) { return std::shared_ptr(open(r).value()); }),
                     local);
    const auto peers = testing::connect_peers(2);
    testing::on_each(2, [&](int64_t p) {
      const auto devices = join_one(peers[static_cast<size_t>(p)]);
      ASSERT_TRUE(devices.ok()) << devices.error().message;
      testing::run_job(job("nodes"), *devices, nodes[p]);
    });
    std::printf("%s\n", nodes[0].line_with("connected by ").c_str());
    EXPECT_EQ(nodes[0].series["train/loss"], local.series["train/loss"]);
    EXPECT_EQ(testing::bytes_of(w / "nodes-model/model.safetensors"),
              testing::bytes_of(w / "local-model/model.safetensors"));
  }
}

}  // namespace
}  // namespace trainyard
