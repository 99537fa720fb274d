// Catches: a job on several GPUs that waits forever for NCCL, which ends a communicator only after
// all recordings with its exchanges were destroyed (fake_nccl.cc): after a fault of a rank, an
// error of NCCL or a GPU that stops, and at a regular end if things are destroyed in the wrong
// order.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/job/train_job.h"
#include "src/runtime/cuda/backend.h"
#include "src/runtime/forwarding_backend.h"
#include "src/train/replicated_session.h"
#include "src/train/trainer.h"
#include "tests/cuda/fake_cuda.h"
#include "tests/cuda/many_buckets.h"
#include "tests/cuda/ranks.h"
#include "tests/support/must_end.h"
#include "tests/support/patience.h"

namespace trainyard {
namespace {

using testing::make_dataset;
using testing::ManyBuckets;
using testing::open_nccl_comms;
using testing::Recorder;
using testing::Workspace;

constexpr int kRanks = 2;
constexpr StepLimits kSoonStopped{.first_s = 2, .least_s = 2, .times = 1, .grace_s = 0.3};
/// Limits that no test reaches.
constexpr StepLimits kNeverStopped{.first_s = 600, .least_s = 600, .times = 1, .grace_s = 600};

bool nccl_has_ended_all() {
  return eventually([] { return open_nccl_comms() == 0; });
}

/// A GPU on which recording number `recording`, counted from 1, fails at a replay. 0: none fails.
class FailingGpu final : public ForwardingBackend {
 public:
  FailingGpu(int ordinal, int recording)
      : ForwardingBackend(std::make_unique<cuda::CudaBackend>(ordinal)), fails_(recording) {}
  std::unique_ptr<Recording> record(const std::function<void()>& submit) override {
    auto recording = ForwardingBackend::record(submit);
    if (++recordings_ != fails_) return recording;
    return std::make_unique<Failing>(std::move(recording));
  }

 private:
  class Failing final : public Recording {
   public:
    explicit Failing(std::unique_ptr<Recording> inner) : inner_(std::move(inner)) {}
    void replay() override {
      if (++replays_ == 3) throw CudaError("a kernel failed (error 700)", 700, CudaFault::kProgram);
      inner_->replay();
    }

   private:
    const std::unique_ptr<Recording> inner_;
    int replays_ = 0;
  };

  const int fails_;
  int recordings_ = 0;
};

/// Emulated GPUs, of which the last fails in this recording.
std::vector<RankDevice> two_gpus(int recording = 0) {
  testing::set_device_count(kRanks);
  return testing::connected(kRanks, [=](int r) {
    return std::make_shared<FailingGpu>(r, r + 1 == kRanks ? recording : 0);
  });
}

/// Runs steps until an exception ends them, and destroys the session and its GPUs; returns the
/// exception's message.
template <typename E>
std::string end_of_steps(std::unique_ptr<ManyBuckets> job) {
  std::string text;
  must_end("the job", [&] {
    try {
      while (true) job->losses(1);
    } catch (const E& e) {
      text = e.what();
    }
    job.reset();
  });
  return text;
}

/// A job whose steps have been recorded.
std::unique_ptr<ManyBuckets> recorded_job(int failing_recording = 0,
                                          const StepLimits& limits = kNeverStopped) {
  auto job = std::make_unique<ManyBuckets>(two_gpus(failing_recording), limits);
  job->losses(3);  // the second step records
  return job;
}

TEST(EmulatedAbort, NobodyWaitsForRecordings) {
  const std::vector<RankDevice> devices = two_gpus();
  auto job = std::make_unique<ManyBuckets>(devices, kNeverStopped);
  job->losses(3);
  must_end("an abort", [&] {
    for (const RankDevice& device : devices) device.backend->communicator()->abort();
    for (const RankDevice& device : devices) device.backend->communicator()->check();
  });
  EXPECT_EQ(open_nccl_comms(), kRanks) << "the emulator does not wait for recordings";
  must_end("the end of the session", [&] { job.reset(); });
  EXPECT_TRUE(nccl_has_ended_all());
}

TEST(EmulatedAbort, F32ARankThatFailsInAStep) {
  EXPECT_EQ(end_of_steps<CudaError>(recorded_job(1)),
            "rank 1 (devices/gpu-1): a kernel failed (error 700)");
  EXPECT_TRUE(nccl_has_ended_all());
}

TEST(EmulatedAbort, F32ABrokenLink) {
  auto job = recorded_job();
  testing::break_link_after(10);
  EXPECT_EQ(
      end_of_steps<CudaError>(std::move(job)),
      "rank 0 (devices/gpu-0): exchanging gradients on GPU 0: an error of NCCL (NCCL error 6)");
  testing::break_link_after(-1);
  EXPECT_TRUE(nccl_has_ended_all());
}

// The recordings stay as long as the stopped rank's thread, which still uses them.
TEST(EmulatedAbort, F32AGpuThatStops) {
  auto job = recorded_job(0, kSoonStopped);
  testing::stall_device(1, 150);
  const std::string text = end_of_steps<RankStopped>(std::move(job));
  EXPECT_NE(text.find("rank 1 (devices/gpu-1) stopped in step "), std::string::npos) << text;
  EXPECT_EQ(open_nccl_comms(), kRanks);
  testing::release_device();
  EXPECT_TRUE(nccl_has_ended_all());
}

// A session may be destroyed while a step is under way, for example after a full disk.
TEST(EmulatedAbort, F32AGpuThatStopsInTheLastStep) {
  auto job = recorded_job(0, kSoonStopped);
  testing::stall_device(1, 10);
  job->session->begin_step(
      {std::as_bytes(std::span(job->input)), std::as_bytes(std::span(job->target)), 3, 0.05f});
  must_end("the end of the session", [&] { job.reset(); });
  EXPECT_GE(open_nccl_comms(), 1) << "the stopped rank still has its recording";
  testing::release_device();
  EXPECT_TRUE(nccl_has_ended_all());
}

TrainJob job_of(const Workspace& w, Shard shard) {
  TrainJob job = testing::rank_job(w, "job-" + name_of(shard));
  job.recipe.shard = shard;
  return job;
}

// With a split head, evaluations contain exchanges, too, and are recorded separately.
TEST(EmulatedAbort, F32ARankThatFailsInAnEvaluation) {
  const Workspace w;
  make_dataset(w, true, 60);
  TrainJob job = job_of(w, Shard::kHead);
  job.recipe.steps = 1'000'000;
  must_end("the job", [&] {
    Recorder recorder;
    try {
      (void)train(job, two_gpus(2), local_files(), recorder, {});
      ADD_FAILURE() << "it has ended without an error";
    } catch (const CudaError& e) {
      EXPECT_STREQ(e.what(), "rank 1 (devices/gpu-1): a kernel failed (error 700)");
    }
  });
  EXPECT_TRUE(nccl_has_ended_all());
}

TEST(EmulatedAbort, AStopAndARegularEnd) {
  const Workspace w;
  make_dataset(w, true, 60);
  for (const Shard shard : {Shard::kNone, Shard::kOptimizer, Shard::kParameters, Shard::kHead}) {
    const TrainJob job = job_of(w, shard);
    must_end(name_of(shard).c_str(), [&] {
      Recorder first, second;
      std::stop_source stop;
      first.stop_step = 5;
      first.stop = &stop;
      EXPECT_EQ(train(job, two_gpus(), local_files(), first, stop.get_token()).error().reason,
                "STOPPED");
      EXPECT_TRUE(nccl_has_ended_all());
      testing::run_job(job, two_gpus(), second);
      EXPECT_TRUE(nccl_has_ended_all());
    });
  }
}

}  // namespace
}  // namespace trainyard
