// The tests catch a job that is admitted to a device whose memory is too small for it, or rejected
// by a device whose memory suffices.
#include "src/planning/memory_room.h"

#include <gtest/gtest.h>

#include "tests/engine/planning_support.h"

namespace trainyard {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

Device gpu(const std::string& name, int64_t memory, int64_t used, int64_t overhead) {
  Device d;
  d.name = name;
  d.kind = DeviceKind::kGpu;
  d.memory_bytes = memory;
  d.memory_used_bytes = used;
  d.overhead_bytes = overhead;
  return d;
}

TEST(MemoryRoom, TheOverheadOfEachProcessIsReserved) {
  const Devices devices{{gpu("devices/gpu-0", 80 * kGiB, 0, kGiB)}, ""};
  const MemoryRoom room = largest_room(DeviceWish::kGpu, 1, devices, {}, 0);
  EXPECT_EQ(room.available_bytes(), 80 * kGiB);
  EXPECT_EQ(room.plan_bytes_max(), 79 * kGiB);
}

TEST(MemoryRoom, MemoryOfOwnJobsIsFreeOnceTheirProcessesEnd) {
  const Devices devices{{gpu("devices/gpu-0", 80 * kGiB, 21 * kGiB, kGiB)}, ""};
  EXPECT_EQ(largest_room(DeviceWish::kGpu, 1, devices, {}, 0).plan_bytes_max(), 58 * kGiB);
  const std::vector<JobMemory> job_memory = {{"devices/gpu-0", 20 * kGiB}};
  EXPECT_EQ(largest_room(DeviceWish::kGpu, 1, devices, job_memory, 0).plan_bytes_max(), 79 * kGiB);
}

TEST(MemoryRoom, TheDeviceWithTheMostFreeMemoryDecides) {
  const Devices devices{
      {gpu("devices/gpu-0", 80 * kGiB, 0, 3 * kGiB), gpu("devices/gpu-1", 79 * kGiB, 0, kGiB)}, ""};
  EXPECT_EQ(largest_room(DeviceWish::kGpu, 1, devices, {}, 0).device, "devices/gpu-1");
}

TEST(MemoryRoom, AShortageNamesItsParts) {
  EXPECT_EQ(shortage_text(79 * kGiB, {"devices/gpu-0", 80 * kGiB, 2 * kGiB, kGiB}),
            "the job needs 80 GiB of memory, with 1 GiB for CUDA and its libraries, 2 GiB "
            "more than devices/gpu-0 has for it (80 GiB, of which other processes use 2 GiB)");
  EXPECT_EQ(shortage_text(9 * kGiB, {"devices/cpu", 8 * kGiB, 0, 0}),
            "the job needs 9 GiB of memory, 1 GiB more than devices/cpu has for it (8 GiB)");
}

}  // namespace
}  // namespace trainyard
