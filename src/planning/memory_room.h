// src/planning/memory_room.h: how much memory the devices of a machine have for a job's plan. Pure
// functions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>

#include "src/job/run_plan.h"
#include "src/plan/device_traits.h"
#include "src/planning/devices.h"

namespace trainyard {

/// The memory that a device could give to one job while no other job of its server runs.
struct MemoryRoom {
  std::string device;
  int64_t memory_bytes = 0;    // the device's memory, or the server's limit for it; 0: unknown
  int64_t others_bytes = 0;    // used by processes that are not jobs of the server
  int64_t overhead_bytes = 0;  // needed by a job in addition to its plan (Device::overhead_bytes)
  int64_t available_bytes() const { return std::max<int64_t>(0, memory_bytes - others_bytes); }
  /// Returns the memory that is left for a plan.
  int64_t plan_bytes_max() const {
    return std::max<int64_t>(0, available_bytes() - overhead_bytes);
  }
  /// Returns whether a plan of `plan_bytes` bytes fits. If the device's memory is unknown, every
  /// plan fits.
  bool holds(int64_t plan_bytes) const {
    return memory_bytes == 0 || plan_bytes <= plan_bytes_max();
  }
};

/// Memory of a running job of the server on one of its devices: its plan without the overhead of
/// its process. It becomes free when the job ends.
struct JobMemory {
  std::string device;
  int64_t bytes = 0;
};

/// Returns the bytes of a device's memory that a job takes: device_bytes(), and on a GPU the
/// resident dataset.
int64_t bytes_on(const DeviceTraits& traits, const RunPlan& plan);

/// Returns true if a job with this wish may run on the device.
bool may_use(DeviceWish wish, const Device& device);

/// Returns the device with the most free memory among those that the job may use. For `gpus` > 1,
/// the one with the least free memory in the best set of `gpus` equal GPUs. Its name is empty if
/// there are not enough GPUs. Memory in `job_memory` is not counted as used by others.
/// `cpu_limit_bytes` limits the CPU's memory; 0: no limit besides its size.
MemoryRoom largest_room(DeviceWish wish, int32_t gpus, const Devices& devices,
                        std::span<const JobMemory> job_memory, int64_t cpu_limit_bytes);

/// Returns "the job needs ... of memory, ... more than ...", without advice.
std::string shortage_text(int64_t plan_bytes, const MemoryRoom& room);

}  // namespace trainyard
