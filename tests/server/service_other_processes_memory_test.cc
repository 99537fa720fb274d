// Fails if memory used by other processes counts as free, or a job's own memory as another
// process's.
#include <gtest/gtest.h>

#include "server/dispatch/other_processes_memory.h"
#include "tests/server/gibibyte.h"

namespace trainyard::server {
namespace {

class OtherProcessesMemoryTest : public ::testing::Test {
 protected:
  OtherProcessesMemoryTest() {
    gpu_.name = "devices/gpu-0";
    gpu_.kind = DeviceKind::kGpu;
    gpu_.memory_bytes = 80 * kGiB;
    gpu_.overhead_bytes = kGiB;
    fleet_.set_devices({{gpu_}, ""});
  }
  void place(const std::string& uid, int64_t gib, bool running) {
    PlacedJob job;
    job.uid = uid;
    job.devices = {"devices/gpu-0"};
    job.bytes = gib * kGiB;
    job.running = running;
    fleet_.place(std::move(job));
  }
  int64_t gib_when_used(int64_t gib) {
    gpu_.memory_used_bytes = gib * kGiB;
    return others_memory_.update(gpu_, fleet_, now_us_ += 10'000) / kGiB;
  }
  Device gpu_;
  Fleet fleet_;
  OtherProcessesMemory others_memory_;
  int64_t now_us_ = 1'000'000'000;
};

TEST_F(OtherProcessesMemoryTest, IsTheMemoryInUseBeyondOurPlans) {
  EXPECT_EQ(gib_when_used(10), 10);
  place("a", 20, true);
  EXPECT_EQ(gib_when_used(31), 10);
  EXPECT_EQ(gib_when_used(15), 0) << "ours use less than they planned";
  EXPECT_EQ(gib_when_used(60), 39) << "someone has come";
}

TEST_F(OtherProcessesMemoryTest, AStartingJobIsNotCountedAsOtherMemory) {
  EXPECT_EQ(gib_when_used(10), 10);
  place("a", 20, false);
  EXPECT_EQ(gib_when_used(10), 10) << "it has taken nothing yet";
  EXPECT_EQ(gib_when_used(20), 10);
  EXPECT_EQ(gib_when_used(31), 10);
  EXPECT_EQ(gib_when_used(40), 19) << "more than its plan cannot be its own";
  place("a", 20, true);
  EXPECT_EQ(gib_when_used(40), 19);
  EXPECT_EQ(gib_when_used(31), 10) << "they have left";
}

// If the death of a worker lowered the estimate for good, jobs that start there one after another
// would be promised memory that other processes use.
TEST_F(OtherProcessesMemoryTest, AWorkerThatHasJustEndedDoesNotReduceOtherMemory) {
  place("a", 20, true);
  EXPECT_EQ(gib_when_used(31), 10);
  EXPECT_EQ(gib_when_used(10), 0) << "its memory is free, its end is not known";
  fleet_.remove("a");
  place("b", 20, false);
  EXPECT_EQ(gib_when_used(10), 10);
  EXPECT_EQ(gib_when_used(31), 10) << "it has taken its own";
}

// If the memory of an ending job counted as that of other processes, a job that needs the whole
// device would lose its reservation whenever another job ends.
TEST_F(OtherProcessesMemoryTest, AJobThatEndsWhileAnotherStartsIsNotCountedAsOtherMemory) {
  place("a", 20, true);
  EXPECT_EQ(gib_when_used(21), 0);
  place("b", 20, false);
  EXPECT_EQ(gib_when_used(42), 0);
  fleet_.remove("a");
  EXPECT_EQ(gib_when_used(21), 0);
}

TEST_F(OtherProcessesMemoryTest, MemoryThatOthersFreedIsNotCountedAgain) {
  place("a", 20, true);
  EXPECT_EQ(gib_when_used(31), 10);
  EXPECT_EQ(gib_when_used(21), 0);
  now_us_ += OtherProcessesMemory::kEndKnownUs;
  EXPECT_EQ(gib_when_used(21), 0);
  place("b", 20, false);
  fleet_.remove("a");
  EXPECT_EQ(gib_when_used(21), 0) << "it is what 'b' has taken";
}

TEST_F(OtherProcessesMemoryTest, AMeasurementDuringAStartLeavesNoTrace) {
  gpu_.memory_used_bytes = 30 * kGiB;
  EXPECT_EQ(others_memory_.estimate(gpu_, fleet_), 30 * kGiB);
  place("a", 20, false);
  EXPECT_EQ(gib_when_used(20), 0) << "it may be all the job's";
}

TEST_F(OtherProcessesMemoryTest, SmallChangesAreIgnored) {
  gpu_.memory_used_bytes = OtherProcessesMemory::kIgnoredBytes;
  EXPECT_EQ(others_memory_.update(gpu_, fleet_, now_us_), 0);
  gpu_.memory_bytes = 0;
  EXPECT_EQ(gib_when_used(10), 0) << "its size is not known";
}

}  // namespace
}  // namespace trainyard::server
