// Tests of one job over several processes, each with its own ranks: it gives the same bits as the
// same number of local ranks, all processes take the same decisions, and none keeps running when
// one ends.
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "src/base/clock.h"
#include "src/checkpoint/checkpoint.h"
#include "src/job/train_job.h"
#include "src/train/trainer.h"
#include "tests/engine/peers_support.h"
#include "tests/engine/rank_children.h"
#include "tests/engine/rank_support.h"
#include "tests/engine/split_support.h"
#include "tests/support/patience.h"
#include "tests/support/storm_relay.h"

namespace trainyard {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::bytes_of;
using testing::connect_peers;
using testing::image_model;
using testing::joined_devices;
using testing::make_dataset;
using testing::on_each;
using testing::plain_job;
using testing::RankChild;
using testing::Recorder;
using testing::weights_of;
using testing::Workspace;

/// The reports and the result of each process of a job.
struct Ended {
  std::vector<Recorder> recorders;
  std::vector<Result<TrainResult>> results;
};

/// Runs the job on processes * ranks_each devices. `prepare` may change a process's job and
/// recorder.
Ended run_over(const TrainJob& job, int64_t processes, int64_t ranks_each = 1,
               const std::function<void(int64_t, TrainJob&, Recorder&)>& prepare = {},
               std::vector<std::stop_source> stops = {}) {
  const auto peers = connect_peers(processes, {.ranks_each = ranks_each});
  const auto count = static_cast<size_t>(processes);
  stops.resize(count);
  Ended ended{std::vector<Recorder>(count),
              std::vector<Result<TrainResult>>(count, Result<TrainResult>(TrainResult{}))};
  on_each(processes, [&](int64_t p) {
    const auto at = static_cast<size_t>(p);
    TrainJob mine = job;
    if (prepare) prepare(p, mine, ended.recorders[at]);
    ended.results[at] = train(mine, joined_devices(peers[at]), local_files(), ended.recorders[at],
                              stops[at].get_token());
  });
  return ended;
}

std::map<std::string, std::map<int64_t, double>> numbers_of(const Recorder& r) {
  auto series = r.series;
  series.erase("train/samples_per_second");
  series.erase("train/data_wait_share");
  return series;
}

/// Runs the job on 4 local ranks, on 4 processes, and on 2 processes of 2 ranks. Expects every
/// reported number and every stored byte to be equal.
void expect_the_bits_of_local_ranks(const std::function<void(TrainJob&)>& change,
                                    bool images = true, const char* saved_step = "step-000000030") {
  const Workspace w;
  make_dataset(w, images, 100, 20);
  const auto job_of = [&](const std::string& name) {
    TrainJob job = plain_job(w, name);
    change(job);
    return job;
  };
  const TrainJob local = job_of("local");
  Recorder expected;
  testing::run(local, 4, expected);
  for (const auto& [processes, each] : {std::pair(4, 1), {2, 2}}) {
    SCOPED_TRACE(std::to_string(processes) + " processes");
    const TrainJob job = job_of("over-" + std::to_string(processes));
    const Ended ended = run_over(job, processes, each);
    for (size_t p = 0; p < ended.results.size(); ++p) {
      ASSERT_TRUE(ended.results[p].ok()) << ended.results[p].error().message;
      EXPECT_EQ(numbers_of(ended.recorders[p]), numbers_of(expected)) << "process " << p;
      EXPECT_EQ(ended.recorders[p].plan.ranks, 4);
      EXPECT_EQ(ended.results[p]->arena_planned_bytes, ended.results[p]->arena_used_bytes);
      EXPECT_TRUE(p == 0 || ended.recorders[p].saved.empty()) << "process " << p;
    }
    EXPECT_EQ(ended.recorders[0].saved, expected.saved);
    EXPECT_EQ(weights_of(job), weights_of(local));
    for (const char* file : {"weights.safetensors", "optimizer.safetensors"}) {
      EXPECT_TRUE(bytes_of(job.checkpoints / saved_step / file) ==
                  bytes_of(local.checkpoints / saved_step / file))
          << file;
    }
  }
}

TEST(Nodes, AnMlpOnNumbers) {
  expect_the_bits_of_local_ranks(
      [](TrainJob& job) {
        job.model.layers = {
            {"", "Gemm", {}, {{"units", int64_t{13}}}}, {"", "Relu", {}, {}}, {"", "Gemm", {}, {}}};
      },
      /*images=*/false);
}
TEST(Nodes, AConvolutionalNetworkWithBatchNormalizationAndDropout) {
  expect_the_bits_of_local_ranks([](TrainJob& job) { job.model = image_model(); });
}
TEST(Nodes, MicroBatchesClippingAndAverages) {
  expect_the_bits_of_local_ranks([](TrainJob& job) {
    job.model = image_model();
    job.recipe.accumulate_steps = 2;
    job.recipe.clip_norm = 0.5;
    job.recipe.ema_decay = 0.9;
    job.recipe.metrics = {"gradient_norm", "confusion_matrix"};
  });
}
TEST(Nodes, AShardedOptimizer) {
  expect_the_bits_of_local_ranks([](TrainJob& job) {
    job.model = image_model();
    job.recipe.optimizer = default_optimizer("adamw");
    job.recipe.optimizer.learning_rate = 0.002;
    job.recipe.clip_norm = 1;
    job.recipe.ema_decay = 0.9;
    job.recipe.shard = Shard::kOptimizer;
  });
}
TEST(Nodes, ShardedParameters) {
  expect_the_bits_of_local_ranks([](TrainJob& job) {
    job.model = image_model();
    job.recipe.optimizer = default_optimizer("adamw");
    job.recipe.optimizer.learning_rate = 0.002;
    job.recipe.clip_norm = 1;
    job.recipe.shard = Shard::kParameters;
  });
}
// The moving average and the best weights are sharded too.
TEST(Nodes, ShardedParametersWithAveragesAndTheBestOfThem) {
  expect_the_bits_of_local_ranks([](TrainJob& job) {
    job.model = image_model();
    job.recipe.accumulate_steps = 2;
    job.recipe.precision = Precision::kBf16;
    job.recipe.ema_decay = 0.9;
    job.recipe.keep_best = {.metric = "val/loss"};
    job.recipe.shard = Shard::kParameters;
  });
}
// Labels and embedding indices are exchanged before their rows are gathered.
TEST(Nodes, ASampleOfTheClasses) {
  for (const int64_t micro_batches : {1, 2}) {
    expect_the_bits_of_local_ranks([&](TrainJob& job) {
      job.model = testing::plain_model();
      job.model.loss = {"SampledSoftmaxCrossEntropyLoss", {{"samples", int64_t{1}}}};
      job.recipe.optimizer = default_optimizer("adamw");
      job.recipe.optimizer.learning_rate = 0.002;
      job.recipe.accumulate_steps = micro_batches;
      job.recipe.clip_norm = 1;
    });
  }
}
TEST(Nodes, SparseLookups) {
  const Workspace w;
  testing::make_text(w);
  const auto job_of = [&](const std::string& name) {
    TrainJob job = plain_job(w, name);
    job.model = {};
    job.model.layers = {
        {"", "Embedding", {}, {{"embedding_dim", int64_t{8}}, {"sparse", int64_t{1}}}},
        {"", "Linear", {}, {}}};
    job.model.loss = {"SampledSoftmaxCrossEntropyLoss", {{"samples", int64_t{4}}}};
    job.recipe.context_length = 3;
    job.recipe.steps = 12;
    job.recipe.batch_size = 8;
    job.recipe.accumulate_steps = 2;
    job.recipe.optimizer = default_optimizer("adam");
    return job;
  };
  const TrainJob local = job_of("local"), spread = job_of("spread");
  Recorder expected;
  testing::run(local, 4, expected);
  const Ended ended = run_over(spread, 2, 2);
  for (size_t p = 0; p < ended.results.size(); ++p) {
    ASSERT_TRUE(ended.results[p].ok()) << ended.results[p].error().message;
    EXPECT_EQ(numbers_of(ended.recorders[p]), numbers_of(expected)) << "process " << p;
  }
  EXPECT_EQ(weights_of(spread), weights_of(local));
}
// In this test the network delivers bytes late and in irregular bursts.
TEST(Nodes, ABadNetworkChangesNoBit) {
  const Workspace w;
  make_dataset(w, /*images=*/false, 100, 20);
  const auto job_of = [&](const std::string& name) {
    TrainJob job = plain_job(w, name);
    job.model.layers = {
        {"", "Gemm", {}, {{"units", int64_t{13}}}}, {"", "Relu", {}, {}}, {"", "Gemm", {}, {}}};
    job.recipe.steps = 10;
    job.recipe.optimizer = default_optimizer("adamw");
    job.recipe.shard = Shard::kOptimizer;
    return job;
  };
  const TrainJob local = job_of("local");
  Recorder expected;
  testing::run(local, 4, expected);
  std::mutex mu;
  std::vector<std::unique_ptr<testing::StormRelay>> relays;
  int stalls = 0;
  const auto through_a_relay = [&](int64_t from, int64_t to, PeerEndpoint endpoint) {
    if (from < to) return endpoint;
    const std::lock_guard lock(mu);
    relays.push_back(std::make_unique<testing::StormRelay>(
        endpoint.port, testing::Storm{.seed = static_cast<uint64_t>(from * 4 + to),
                                      .delay = milliseconds(3),
                                      .jitter = milliseconds(10),
                                      .bytes_to_stall = 3'000,
                                      .stall = milliseconds(40)}));
    endpoint.port = relays.back()->port();
    return endpoint;
  };
  const auto peers = connect_peers(4, {}, through_a_relay);
  const TrainJob job = job_of("stormy");
  std::vector<Recorder> recorders(4);
  on_each(4, [&](int64_t p) {
    const auto at = static_cast<size_t>(p);
    const auto result = train(job, joined_devices(peers[at]), local_files(), recorders[at], {});
    EXPECT_TRUE(result.ok()) << result.error().message;
    EXPECT_EQ(numbers_of(recorders[at]), numbers_of(expected)) << "process " << p;
  });
  EXPECT_EQ(weights_of(job), weights_of(local));
  for (const auto& relay : relays) stalls += relay->stalls();
  EXPECT_EQ(relays.size(), 6u);
  EXPECT_GT(stalls, 0) << "or it was calm";
}

TEST(Nodes, BestWeightsAndAnEarlyStop) {
  expect_the_bits_of_local_ranks(
      [](TrainJob& job) {
        job.model = image_model();
        job.recipe.steps = 60;
        job.recipe.evaluate_every_steps = 2;
        job.recipe.keep_best = {.metric = "val/accuracy"};
        job.recipe.early_stopping = {.metric = "val/accuracy", .patience = 2, .min_delta = 2};
        job.recipe.checkpoint_every_steps = 2;
      },
      true, "step-000000006");
}
/// A clock that advances by an hour with each reading.
class HastyClock final : public Clock {
 public:
  int64_t wall_us() const override { return system_clock().wall_us(); }
  int64_t steady_us() const override { return hours_++ * 3'600'000'000; }

 private:
  mutable std::atomic<int64_t> hours_{1};
};

// Clocks differ, so the first process alone decides when a checkpoint is due by time.
TEST(Nodes, CheckpointsFollowTheClockOfRankZero) {
  const Workspace w;
  make_dataset(w, true, 100);
  for (const int64_t hasty : {0, 1}) {
    const TrainJob job = plain_job(w, "hasty-" + std::to_string(hasty));
    const auto peers = connect_peers(2);
    std::vector<Recorder> recorders(2);
    const HastyClock hours;
    on_each(2, [&](int64_t p) {
      const auto at = static_cast<size_t>(p);
      const auto result = train(job, joined_devices(peers[at]), local_files(), recorders[at], {},
                                p == hasty ? static_cast<const Clock&>(hours) : system_clock());
      EXPECT_TRUE(result.ok()) << result.error().message;
    });
    const std::vector<int64_t>& saved = recorders[0].saved;
    ASSERT_FALSE(saved.empty());
    EXPECT_EQ(saved.back(), 30);
    EXPECT_EQ(saved.size() > 10, hasty == 0) << saved.size();
  }
}

// A stop signal may reach a single node only.
TEST(Nodes, AStopOfOneStopsAllAfterTheSameStepAndTheyResume) {
  const Workspace w;
  make_dataset(w, true, 100);
  const auto job_of = [&](const std::string& name) {
    TrainJob job = plain_job(w, name);
    job.model = image_model();
    job.recipe.optimizer = default_optimizer("adamw");
    job.recipe.shard = Shard::kOptimizer;
    return job;
  };
  const TrainJob whole = job_of("whole"), parts = job_of("parts");
  Recorder expected;
  testing::run(whole, 4, expected);

  std::vector<std::stop_source> stops(4);
  const Ended first = run_over(
      parts, 4, 1,
      [&](int64_t p, TrainJob&, Recorder& r) {
        if (p != 2) return;
        r.on_progress = [&stops](int64_t signs) {
          if (signs == 8) stops[2].request_stop();
        };
      },
      stops);
  for (const auto& result : first.results) {
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().reason, "STOPPED");
    EXPECT_EQ(result.error().message, "stopped after step 8 of 30");
  }
  EXPECT_EQ(first.recorders[0].saved, std::vector<int64_t>{8});
  const Ended second = run_over(parts, 2, 2);
  for (size_t p = 0; p < 2; ++p) {
    ASSERT_TRUE(second.results[p].ok()) << second.results[p].error().message;
    EXPECT_EQ(second.recorders[p].plan.first_step, 8);
  }
  EXPECT_EQ(weights_of(parts), weights_of(whole));
}

TEST(Nodes, ACheckpointResumesLocallyAndOnNodesAgain) {
  const Workspace w;
  make_dataset(w, true, 100);
  const TrainJob whole = plain_job(w, "whole");
  Recorder expected;
  testing::run(whole, 4, expected);
  const TrainJob parts = plain_job(w, "parts");
  std::vector<std::stop_source> stops(4);
  (void)run_over(
      parts, 4, 1,
      [&](int64_t p, TrainJob&, Recorder& r) {
        if (p == 0) {
          r.on_progress = [&](int64_t signs) {
            if (signs == 5) stops[0].request_stop();
          };
        }
      },
      stops);
  Recorder local;
  testing::run(parts, 4, local);
  EXPECT_EQ(local.plan.first_step, 5);
  EXPECT_EQ(weights_of(parts), weights_of(whole));
}

TEST(Nodes, DifferentJobsAndCheckpointsAreRefused) {
  const Workspace w;
  make_dataset(w, true, 100);
  const TrainJob job = plain_job(w, "a");
  const auto refused = [&](const std::function<void(TrainJob&)>& change) {
    std::string reason = "none";
    const auto peers = connect_peers(2);
    on_each(2, [&](int64_t p) {
      TrainJob mine = job;
      if (p == 1) change(mine);
      Recorder r;
      const auto at = static_cast<size_t>(p);
      try {
        const auto result = train(mine, joined_devices(peers[at]), local_files(), r, {});
        if (p == 1 && !result.ok()) reason = result.error().reason;
      } catch (const RankLost& e) {
        EXPECT_EQ(p, 0) << e.what();
      }
      peers[at]->abort();  // simulates the end of the process
      (void)[&] {
        try {
          peers[at]->any(false);
        } catch (const ExchangeAborted&) {
        }
      }
      ();
    });
    return reason;
  };
  EXPECT_EQ(refused([](TrainJob& other) { other.recipe.seed = 6; }), "RANKS_DIFFER");
  // Only one process has a checkpoint.
  TrainJob earlier = plain_job(w, "b");
  earlier.recipe.checkpoint_every_steps = 5;
  Recorder r;
  testing::run(earlier, 2, r);
  EXPECT_EQ(refused([&](TrainJob& other) { other.checkpoints = earlier.checkpoints; }),
            "RANKS_DIFFER");
}

std::vector<std::unique_ptr<RankChild>> start_children(const Workspace& w, int quiet_ms,
                                                       const std::string& work = "work",
                                                       Shard shard = Shard::kOptimizer) {
  return testing::start_rank_children({.program = "rank_process",
                                       .dataset = w / "dataset",
                                       .work = w / work,
                                       .quiet_ms = quiet_ms,
                                       .shard = shard});
}

TEST(Nodes, AKilledProcessIsNamedByAllOthers) {
  const Workspace w;
  make_dataset(w, true, 100);
  auto children = start_children(w, 900'000);
  EXPECT_EQ(children[0]->line("saved 25"), "saved 25");
  children[2]->line("step 30");
  children[2]->kill(SIGKILL);
  const auto begin = steady_clock::now();
  for (const size_t p : {0, 1, 3}) {
    const std::string line = children[p]->line("lost");
    EXPECT_EQ(line, "lost 2: rank 2 (127.0.0.1) has ended: its connection broke") << "rank " << p;
    EXPECT_EQ(children[p]->wait(), 1);
  }
  EXPECT_LT(steady_clock::now() - begin, patience());

  // All processes resume from process 0's checkpoint, and the result has the bits of an
  // uninterrupted run.
  auto again = start_children(w, 900'000);
  EXPECT_NE(again[0]->line("from "), "from 0");
  for (auto& child : again) EXPECT_EQ(child->line("done"), "done");
  auto calm = start_children(w, 900'000, "calm");
  EXPECT_EQ(calm[0]->line("from "), "from 0");
  for (auto& child : calm) EXPECT_EQ(child->line("done"), "done");
  EXPECT_TRUE(bytes_of(w / "work/model/model.safetensors") ==
              bytes_of(w / "calm/model/model.safetensors"));
}

// A killed process loses its shards, but the first process's checkpoint has them all.
TEST(Nodes, ShardedParametersSurviveAKilledProcess) {
  const Workspace w;
  make_dataset(w, true, 100);
  const auto start = [&](const std::string& work) {
    return start_children(w, 900'000, work, Shard::kParameters);
  };
  auto children = start("work");
  EXPECT_EQ(children[0]->line("saved 25"), "saved 25");
  children[3]->line("step 30");
  children[3]->kill(SIGKILL);
  for (const size_t p : {0, 1, 2}) {
    EXPECT_TRUE(children[p]->line("lost").starts_with("lost 3: ")) << "rank " << p;
    EXPECT_EQ(children[p]->wait(), 1);
  }
  auto again = start("work");
  EXPECT_NE(again[0]->line("from "), "from 0");
  for (auto& child : again) EXPECT_EQ(child->line("done"), "done");
  auto calm = start("calm");
  EXPECT_EQ(calm[0]->line("from "), "from 0");
  for (auto& child : calm) EXPECT_EQ(child->line("done"), "done");
  EXPECT_TRUE(bytes_of(w / "work/model/model.safetensors") ==
              bytes_of(w / "calm/model/model.safetensors"));
}

TEST(Nodes, AStalledProcessIsNamed) {
  const Workspace w;
  make_dataset(w, true, 100);
  auto children = start_children(w, 4000);
  children[1]->line("step 3");
  children[1]->kill(SIGSTOP);
  const auto begin = steady_clock::now();
  bool named = false;
  for (const size_t p : {0, 2, 3}) {
    const std::string line = children[p]->line("lost");
    EXPECT_FALSE(line.empty()) << "rank " << p;
    named = named || line.starts_with("lost 1: rank 1 has neither sent nor received data for 4 s");
    EXPECT_EQ(children[p]->wait(), 1);
  }
  EXPECT_TRUE(named);
  EXPECT_LT(steady_clock::now() - begin, patience());
}

}  // namespace
}  // namespace trainyard
