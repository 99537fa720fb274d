// GPUs of several nodes: the processes of one job are threads of this test, which share only
// loopback and NCCL's id. Catches: bits that differ from as many GPUs of one node; a process that
// waits forever or continues alone because another one's GPU does not start or has stopped; kernels
// of a step that are never ended.
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <thread>

#include "src/job/train_job.h"
#include "src/runtime/cuda/backend.h"
#include "src/runtime/join.h"
#include "src/train/trainer.h"
#include "tests/cuda/fake_cuda.h"
#include "tests/cuda/many_buckets.h"
#include "tests/cuda/ranks.h"
#include "tests/engine/peers_support.h"
#include "tests/support/must_end.h"
#include "tests/support/patience.h"

namespace trainyard {
namespace {

using std::chrono::milliseconds;
using testing::bytes_of;
using testing::connect_peers;
using testing::make_dataset;
using testing::ManyBuckets;
using testing::on_each;
using testing::Recorder;
using testing::Workspace;

constexpr int kDevices = 4;

std::shared_ptr<Backend> gpu(int64_t ordinal) {
  testing::set_device_count(kDevices);
  return std::make_shared<cuda::CudaBackend>(static_cast<int>(ordinal));
}

/// This process's GPUs, connected with those of the others.
Result<std::vector<RankDevice>> join_gpus(const std::shared_ptr<Peers>& peers) {
  return join_devices(peers, [&]() -> Result<std::vector<RankDevice>> {
    std::vector<RankDevice> devices;
    for (int64_t r = 0; r < peers->ranks_each(); ++r) {
      const int64_t ordinal = peers->first_rank() + r;
      devices.push_back({"devices/gpu-" + std::to_string(ordinal), gpu(ordinal)});
    }
    return devices;
  });
}

bool nccl_has_ended_all() {
  return eventually([] { return testing::open_nccl_comms() == 0; });
}

/// Simulates the end of the process, even if other objects still refer to `peers`.
void end(Peers& peers) {
  peers.abort();
  EXPECT_THROW((void)peers.any(false), ExchangeAborted);
}

std::map<std::string, std::map<int64_t, double>> numbers_of(const Recorder& r) {
  auto series = r.series;
  series.erase("train/samples_per_second");
  series.erase("train/data_wait_share");
  return series;
}

TrainJob job_of(const Workspace& w, const std::string& name, Shard shard, int64_t micro_batches) {
  TrainJob job = testing::rank_job(w, name);
  job.recipe.shard = shard;
  job.recipe.accumulate_steps = micro_batches;
  return job;
}

/// Runs the job on 4 GPUs of one process, on 4 processes, and on 2 processes of 2 GPUs, and expects
/// equal reports and equal stored bytes.
void expect_the_bits_of_local_gpus(Shard shard, int64_t micro_batches = 1) {
  const Workspace w;
  make_dataset(w, /*images=*/true, 100);
  const TrainJob local = job_of(w, "local", shard, micro_batches);
  Recorder expected, of_cpus;
  testing::run_job(local, testing::connected(kDevices, gpu), expected);
  testing::run_job(job_of(w, "cpu", shard, micro_batches), testing::cpu_ranks(kDevices), of_cpus);
  for (const auto& [step, loss] : of_cpus.series["train/loss"]) {
    EXPECT_NEAR(expected.series["train/loss"][step], loss, 1e-4 * loss) << "step " << step;
  }
  for (const int64_t each : {1, 2}) {
    SCOPED_TRACE(std::to_string(each) + " GPUs of each node");
    const int64_t processes = kDevices / each;
    const TrainJob job = job_of(w, "of-" + std::to_string(each), shard, micro_batches);
    const auto peers = connect_peers(processes, {.ranks_each = each});
    std::vector<Recorder> recorders(static_cast<size_t>(processes));
    on_each(processes, [&](int64_t p) {
      const auto at = static_cast<size_t>(p);
      const auto devices = join_gpus(peers[at]);
      ASSERT_TRUE(devices.ok()) << devices.error().message;
      testing::run_job(job, *devices, recorders[at]);
    });
    for (const Recorder& r : recorders) {
      EXPECT_EQ(numbers_of(r), numbers_of(expected));
      EXPECT_EQ(r.plan.ranks, kDevices);
    }
    EXPECT_EQ(recorders[0].saved, expected.saved);
    EXPECT_EQ(bytes_of(job.model_output / "model.safetensors"),
              bytes_of(local.model_output / "model.safetensors"));
    for (const char* file : {"weights.safetensors", "optimizer.safetensors"}) {
      EXPECT_EQ(bytes_of(job.checkpoints / "step-000000005" / file),
                bytes_of(local.checkpoints / "step-000000005" / file))
          << file;
    }
    EXPECT_TRUE(nccl_has_ended_all());
  }
}

TEST(EmulatedNodes, TrainWithTheBitsOfLocalGpus) { expect_the_bits_of_local_gpus(Shard::kNone); }
TEST(EmulatedNodes, MicroBatches) { expect_the_bits_of_local_gpus(Shard::kNone, 2); }
TEST(EmulatedNodes, AShardedOptimizer) { expect_the_bits_of_local_gpus(Shard::kOptimizer); }
TEST(EmulatedNodes, ShardedParameters) { expect_the_bits_of_local_gpus(Shard::kParameters); }

TEST(EmulatedNodes, TheJobSaysByWhatTheyAreConnected) {
  const Workspace w;
  make_dataset(w, true, 60);
  const auto peers = connect_peers(2, {.ranks_each = 2});
  Recorder recorders[2];
  on_each(2, [&](int64_t p) {
    const auto devices = join_gpus(peers[static_cast<size_t>(p)]).value();
    testing::run_job(testing::rank_job(w, "job"), devices, recorders[p]);
  });
  const std::string each = "NCCL " + std::to_string(NCCL_MAJOR) + "." + std::to_string(NCCL_MINOR) +
                           "." + std::to_string(NCCL_PATCH) + " through ";
  const std::string line = recorders[0].line_with("connected by ");
  EXPECT_TRUE(line.starts_with("connected by ranks 0 to 1: " + each)) << line;
  EXPECT_NE(line.find("; ranks 2 to 3: " + each), line.npos) << line;
}

/// The error with which two processes of two GPUs fail to connect, which must be the same for both.
Error refusal_of_both(const PeerOptions& options, const std::vector<std::stop_source>& stops = {}) {
  const auto peers = connect_peers(2, options, {}, stops);
  std::vector<Error> errors(2);
  on_each(2, [&](int64_t p) {
    const auto at = static_cast<size_t>(p);
    auto joined = join_gpus(peers[at]);
    ASSERT_FALSE(joined.ok());
    errors[at] = std::move(joined).error();
  });
  EXPECT_EQ(errors[0].message, errors[1].message);
  EXPECT_EQ(errors[0].reason, errors[1].reason);
  EXPECT_TRUE(nccl_has_ended_all()) << "not aborted";
  return errors[0];
}

TEST(EmulatedNodes, ARankThatNeverStartsIsNotWaitedForLonger) {
  testing::set_nccl_start(3, ncclInProgress);
  const Error e = refusal_of_both({.ranks_each = 2, .connect_limit = milliseconds(3000)});
  testing::set_nccl_start(3, ncclSuccess);
  EXPECT_EQ(e.reason, "RANKS_MISSING");
  EXPECT_EQ(e.code, ErrorCode::kDeadlineExceeded);
  EXPECT_NE(e.message.find(" has waited 3 s for the others"), std::string::npos) << e.message;
  EXPECT_NE(e.message.find("must reach all of each other's ports"), std::string::npos) << e.message;
}

// The other process's GPUs only wait, so their error would say nothing about the cause.
TEST(EmulatedNodes, ARankThatFailsToStartIsNamedToAll) {
  testing::set_nccl_start(2, ncclSystemError);
  const Error e = refusal_of_both({.ranks_each = 2, .connect_limit = milliseconds(3000)});
  testing::set_nccl_start(2, ncclSuccess);
  EXPECT_EQ(e.reason, "RANKS_UNCONNECTED");
  EXPECT_TRUE(e.message.starts_with("ranks 2 to 3: NCCL ")) << e.message;
  EXPECT_NE(e.message.find("on GPU 2 (rank 2 of 4) did not connect with the others: an error of "
                           "NCCL (NCCL error 2)"),
            std::string::npos)
      << e.message;
}

TEST(EmulatedNodes, AStopIsHeededWhileTheyConnect) {
  testing::set_nccl_start(3, ncclInProgress);
  std::vector<std::stop_source> stops(2);
  std::jthread later([&] {
    while (testing::open_nccl_comms() < kDevices) std::this_thread::sleep_for(milliseconds(1));
    for (std::stop_source& stop : stops) stop.request_stop();
  });
  const Error e = refusal_of_both({.ranks_each = 2, .connect_limit = milliseconds(600'000)}, stops);
  testing::set_nccl_start(3, ncclSuccess);
  EXPECT_EQ(e.reason, "STOPPED");
  EXPECT_EQ(e.code, ErrorCode::kCancelled);
}

TEST(EmulatedNodes, AnIdIsGoodForOneStart) {
  for (int attempt = 0; attempt < 2; ++attempt) {
    const auto peers = connect_peers(2);
    on_each(2, [&](int64_t p) {
      const auto joined = join_gpus(peers[static_cast<size_t>(p)]);
      EXPECT_TRUE(joined.ok()) << joined.error().message;
    });
  }
}

// Both sides have a step in flight when the process ends: without an abort, the destructors of the
// sessions would wait for it.
TEST(EmulatedNodes, AProcessThatGoesEndsTheOthers) {
  const Workspace w;
  make_dataset(w, true, 60);
  for (const Shard shard : {Shard::kNone, Shard::kParameters}) {
    const auto peers = connect_peers(2, {.ranks_each = 2});
    on_each(2, [&](int64_t p) {
      const auto at = static_cast<size_t>(p);
      const auto devices = join_gpus(peers[at]).value();
      TrainJob job = testing::rank_job(w, "job-" + name_of(shard));
      job.recipe.shard = shard;
      job.recipe.steps = 1'000'000;
      Recorder recorder;
      if (p == 1) {
        recorder.on_progress = [](int64_t signs) {
          if (signs == 7) throw std::runtime_error("it is killed");
        };
      }
      try {
        const auto result = train(job, devices, local_files(), recorder, {});
        ADD_FAILURE() << "it has ended by itself: " << result.ok();
      } catch (const RankLost& e) {
        EXPECT_EQ(p, 0);
        EXPECT_EQ(e.rank, 2);
        EXPECT_EQ(std::string(e.what()), "ranks 2 to 3 (127.0.0.1) has aborted the job");
      } catch (const std::runtime_error& e) {
        EXPECT_EQ(std::string(e.what()), "it is killed");
        EXPECT_EQ(p, 1);
      }
      if (p == 1) end(*peers[at]);
    });
    EXPECT_TRUE(nccl_has_ended_all());
  }
}

constexpr StepLimits kSoon{.first_s = 2, .least_s = 2, .times = 1, .grace_s = 0.3};
constexpr StepLimits kLate{.first_s = 600, .least_s = 600, .times = 1, .grace_s = 0.3};

/// Runs steps until an exception of type E ends them; returns its message.
template <typename E>
std::string end_of_steps(ManyBuckets& job) {
  try {
    while (true) job.losses(1);
  } catch (const E& e) {
    return e.what();
  }
}

TEST(EmulatedNodes, ARankThatStopsIsNamedByItsProcess) {
  const auto peers = connect_peers(2, {.ranks_each = 2});
  on_each(2, [&](int64_t p) {
    const auto at = static_cast<size_t>(p);
    ManyBuckets job(join_gpus(peers[at]).value(), p == 0 ? kLate : kSoon);
    job.losses(4);
    if (p == 0) {
      EXPECT_EQ(end_of_steps<RankLost>(job), "ranks 2 to 3 (127.0.0.1) has aborted the job");
      return;
    }
    testing::stall_device(3, 150);
    const std::string text = end_of_steps<RankStopped>(job);
    EXPECT_NE(text.find("rank 3 (devices/gpu-3) stopped in step "), std::string::npos) << text;
    end(*peers[at]);
    testing::release_device();
  });
  std::this_thread::sleep_for(milliseconds(300));  // lets the abandoned threads end
}

// NCCL reports a link that broke to all processes, and a process that has ended meanwhile is named.
TEST(EmulatedNodes, ABrokenLinkEndsAll) {
  const auto peers = connect_peers(2, {.ranks_each = 2});
  std::barrier recorded(2);
  must_end("the job", [&] {
    on_each(2, [&](int64_t p) {
      const auto at = static_cast<size_t>(p);
      ManyBuckets job(join_gpus(peers[at]).value(),
                      {.first_s = 600, .least_s = 600, .grace_s = 600});
      job.losses(3);  // the second step records
      recorded.arrive_and_wait();
      if (p == 0) testing::break_link_after(10);
      std::string text;
      try {
        while (true) job.losses(1);
      } catch (const CudaError& e) {
        text = e.what();
        EXPECT_NE(text.find("exchanging gradients on GPU "), text.npos) << text;
      } catch (const RankLost& e) {
        text = e.what();
        EXPECT_NE(text.find(" (127.0.0.1) has aborted the job"), text.npos) << text;
      }
      end(*peers[at]);
    });
  });
  testing::break_link_after(-1);
  EXPECT_TRUE(nccl_has_ended_all());
}

TEST(EmulatedNodes, AStopOfOneEndsAll) {
  const Workspace w;
  make_dataset(w, true, 60);
  const auto peers = connect_peers(2, {.ranks_each = 2});
  must_end("the job", [&] {
    on_each(2, [&](int64_t p) {
      const auto devices = join_gpus(peers[static_cast<size_t>(p)]).value();
      Recorder recorder;
      std::stop_source stop;
      if (p == 1) {
        recorder.stop_step = 5;
        recorder.stop = &stop;
      }
      const auto result = train(testing::rank_job(w, "job-" + std::to_string(p)), devices,
                                local_files(), recorder, stop.get_token());
      EXPECT_EQ(result.error().reason, "STOPPED");
    });
  });
  EXPECT_TRUE(nccl_has_ended_all());
}

// All ranks of this process wait in an exchange, and the other process sends no reason.
TEST(EmulatedNodes, OthersThatAreSilentAreNamed) {
  const auto peers = connect_peers(2, {.ranks_each = 2});
  std::atomic<bool> over{false};
  on_each(2, [&](int64_t p) {
    const auto at = static_cast<size_t>(p);
    ManyBuckets job(join_gpus(peers[at]).value(), kSoon);
    if (p == 1) {
      while (!over) std::this_thread::sleep_for(milliseconds(5));
      return;
    }
    const std::string text = end_of_steps<RankLost>(job);
    over = true;
    EXPECT_TRUE(text.starts_with("rank 0 (devices/gpu-0) stopped in step ")) << text;
    EXPECT_NE(text.find("all ranks of this process have reached it, and it did not end within 2 "
                        "s; one of the others (ranks 2 to 3) has stopped, or the connection "),
              std::string::npos)
        << text;
  });
}

}  // namespace
}  // namespace trainyard
