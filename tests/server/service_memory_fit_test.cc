// Catches: a job that is let onto a device whose memory it does not fit into, or kept from one into
// which it does.
#include "server/planning/memory_fit.h"

#include <gtest/gtest.h>

#include "tests/server/gibibyte.h"

namespace trainyard::server {
namespace {

Device gpu(const std::string& name, int64_t memory, int64_t used, int64_t overhead) {
  Device d;
  d.name = name;
  d.kind = DeviceKind::kGpu;
  d.memory_bytes = memory;
  d.memory_used_bytes = used;
  d.overhead_bytes = overhead;
  return d;
}

Job running_on(const std::string& device, int64_t bytes) {
  Job job;
  job.state = JobState::kRunning;
  job.devices = {device};
  job.plan.mutable_memory()->set_activation_bytes(bytes);
  return job;
}

TEST(MemoryFit, WhatEachProcessTakesIsKeptFree) {
  const Devices devices{{gpu("devices/gpu-0", 80 * kGiB, 0, kGiB)}, ""};
  const MemoryRoom room = server::largest_room(DeviceWish::kGpu, 1, devices, {}, 0);
  EXPECT_EQ(room.available_bytes(), 80 * kGiB);
  EXPECT_EQ(room.plan_bytes_max(), 79 * kGiB);
}

TEST(MemoryFit, WhatOurOwnJobsTakeComesBackWithTheirProcesses) {
  const Devices devices{{gpu("devices/gpu-0", 80 * kGiB, 21 * kGiB, kGiB)}, ""};
  EXPECT_EQ(server::largest_room(DeviceWish::kGpu, 1, devices, {}, 0).plan_bytes_max(), 58 * kGiB);
  const std::vector<Job> active = {running_on("devices/gpu-0", 20 * kGiB)};
  EXPECT_EQ(server::largest_room(DeviceWish::kGpu, 1, devices, active, 0).plan_bytes_max(), 79 * kGiB);
}

TEST(MemoryFit, TheDeviceWithMostRoomForAPlanCounts) {
  const Devices devices{
      {gpu("devices/gpu-0", 80 * kGiB, 0, 3 * kGiB), gpu("devices/gpu-1", 79 * kGiB, 0, kGiB)}, ""};
  EXPECT_EQ(server::largest_room(DeviceWish::kGpu, 1, devices, {}, 0).device, "devices/gpu-1");
}

TEST(MemoryFit, AShortageNamesItsParts) {
  EXPECT_EQ(server::shortage_text(79 * kGiB, {"devices/gpu-0", 80 * kGiB, 2 * kGiB, kGiB}),
            "the job needs 80 GiB of memory, with 1 GiB for CUDA and its libraries, 2 GiB "
            "more than devices/gpu-0 has for it (80 GiB, of which others use 2 GiB)");
  EXPECT_EQ(server::shortage_text(9 * kGiB, {"devices/cpu", 8 * kGiB, 0, 0}),
            "the job needs 9 GiB of memory, 1 GiB more than devices/cpu has for it (8 GiB)");
}

TEST(MemoryFit, WhatAFitCostsIsTimeWhereThatIsForecastElseWork) {
  v1::FitChoice choice;
  choice.set_flops_as_written(1000);
  EXPECT_EQ(server::cost_text(choice, 1330), "; a step computes 33% more");
  EXPECT_EQ(server::cost_text(choice, 1000), "");
  choice.set_step_seconds(0.127);
  EXPECT_EQ(server::cost_text(choice, 1330), "; a step computes 33% more") << "no time to compare with";
  choice.set_step_seconds_as_written(0.1);
  EXPECT_EQ(server::cost_text(choice, 1330), "; a step takes about 27% longer by forecast");
  choice.set_step_seconds(0.1001);
  EXPECT_EQ(server::cost_text(choice, 1000), "; a step takes about as long by forecast");
  choice.set_step_seconds(0.09);
  EXPECT_EQ(server::cost_text(choice, 1000), "; a step takes about 10% less by forecast");
}

}  // namespace
}  // namespace trainyard::server
