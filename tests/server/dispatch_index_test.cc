// Tests of the dispatcher's index alone: how changes of a job and of its process change the queue
// and the devices in use.
#include "server/dispatch/dispatch_index.h"

#include <gtest/gtest.h>

#include "src/base/check.h"
#include "tests/server/fake_clock.h"
#include "tests/server/gibibyte.h"

namespace trainyard::server {
namespace {

class DispatchIndexTest : public ::testing::Test {
 protected:
  static Device gpu() {
    Device device;
    device.name = "devices/gpu-0";
    device.kind = DeviceKind::kGpu;
    device.uuid = "GPU-0";
    device.memory_bytes = 80 * kGiB;
    device.slots = 4;
    return device;
  }
  static JobBrief job(JobState state, std::vector<std::string> devices = {}) {
    JobBrief brief;
    brief.uid = "u1";
    brief.id = "job";
    brief.owner = "ann";
    brief.order = 1;
    brief.state = state;
    brief.resources.set_device(v1::Resources::GPU);
    brief.devices = std::move(devices);
    brief.on_gpu.bytes = kGiB;
    return brief;
  }
  DispatchIndex::Pass pass() {
    Devices devices;
    devices.devices = {gpu()};
    return index_.decide(std::move(devices), Quotas(), /*draining=*/false);
  }
  std::vector<PlacedJob> on_gpu() {
    const std::vector<Device> now = {gpu()};
    return index_.devices(now)[0].jobs;
  }

  FakeClock clock_;
  Supervisor supervisor_{SupervisorOptions{}, clock_};
  Clusters clusters_{supervisor_, clock_, {}, [] {}};
  Policy policy_;
  DispatchIndex index_{policy_, {}, clusters_, clock_};
};

TEST_F(DispatchIndexTest, AWaitingJobIsListedAndARunningOneOccupiesItsDevice) {
  EXPECT_TRUE(index_.is_idle());
  index_.take(job(JobState::kQueued));
  ASSERT_EQ(pass().here.starts.size(), 1u);
  index_.add_process("u1", {"devices/gpu-0"});
  index_.take(job(JobState::kStarting, {"devices/gpu-0"}));
  EXPECT_TRUE(pass().here.starts.empty());
  ASSERT_EQ(on_gpu().size(), 1u);
  EXPECT_FALSE(on_gpu()[0].stopping);
  EXPECT_FALSE(index_.is_idle());
}

TEST_F(DispatchIndexTest, ASlotIsFreeOnceTheProcessHasEnded) {
  index_.add_process("u1", {"devices/gpu-0"});
  index_.take(job(JobState::kRunning, {"devices/gpu-0"}));
  (void)pass();
  index_.take(job(JobState::kSucceeded));
  ASSERT_EQ(on_gpu().size(), 1u) << "its process still exits";
  EXPECT_TRUE(on_gpu()[0].stopping);
  index_.remove_process("u1");
  EXPECT_TRUE(on_gpu().empty());
  EXPECT_TRUE(index_.is_idle());
}

// The store already shows the job as waiting again before the end of its process is noticed.
TEST_F(DispatchIndexTest, AStopRequestDoesNotApplyToTheNextAttempt) {
  index_.add_process("u1", {"devices/gpu-0"});
  index_.take(job(JobState::kRunning, {"devices/gpu-0"}));
  (void)pass();
  index_.leave("u1");
  EXPECT_TRUE(on_gpu()[0].stopping);
  index_.take(job(JobState::kQueued));
  index_.add_process("u1", {"devices/gpu-0"});
  index_.take(job(JobState::kStarting, {"devices/gpu-0"}));
  ASSERT_EQ(on_gpu().size(), 1u);
  EXPECT_FALSE(on_gpu()[0].stopping);
}

TEST_F(DispatchIndexTest, AJobDoesNotStartWhileItsLastProcessRuns) {
  index_.add_process("u1", {"devices/gpu-0"});
  index_.take(job(JobState::kRunning, {"devices/gpu-0"}));
  index_.take(job(JobState::kQueued));
  EXPECT_TRUE(pass().here.starts.empty());
  index_.remove_process("u1");
  EXPECT_EQ(pass().here.starts.size(), 1u);
}

TEST_F(DispatchIndexTest, AClusterGetsAtMostWaitingMaxJobs) {
  ClusterConfig config;
  config.name = "c";
  config.waiting_max = 2;
  const std::vector<ClusterConfig> configs = {config};
  DispatchIndex index(policy_, configs, clusters_, clock_);
  for (int i = 1; i <= 4; ++i) {
    JobBrief brief = job(JobState::kQueued);
    brief.uid = "u" + std::to_string(i);
    brief.order = i;
    brief.resources.set_cluster("c");
    index.take(brief);
  }
  Devices devices;
  devices.devices = {gpu()};
  EXPECT_EQ(
      index.decide(std::move(devices), Quotas(), /*draining=*/false).to_clusters.starts.size(), 2u);
}

TEST_F(DispatchIndexTest, ImpossibleChangesFailACheck) {
  EXPECT_THROW(index_.remove_process("u1"), InvariantError);
  EXPECT_THROW(index_.leave("u1"), InvariantError);
  EXPECT_THROW(index_.add_process("u1", {}), InvariantError);
}

}  // namespace
}  // namespace trainyard::server
