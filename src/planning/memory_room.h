// src/planning/memory_room.h: what the devices of a machine have for a job's memory plan. Pure.
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
  int64_t memory_bytes = 0;    // of the device, or the server's limit for it; 0: unknown
  int64_t others_bytes = 0;    // in use by programs that are not jobs of the server
  int64_t overhead_bytes = 0;  // that a job needs in addition to its plan (Device::overhead_bytes)
  int64_t available_bytes() const { return std::max<int64_t>(0, memory_bytes - others_bytes); }
  /// The memory that is left for a plan.
  int64_t plan_bytes_max() const {
    return std::max<int64_t>(0, available_bytes() - overhead_bytes);
  }
  /// Says whether a plan of so many bytes fits. Where the memory is unknown, every plan does.
  bool holds(int64_t plan_bytes) const {
    return memory_bytes == 0 || plan_bytes <= plan_bytes_max();
  }
};

/// Memory that a running job of the server holds on one of its devices by its plan, without its
/// process's overhead. It will be free again.
struct HeldMemory {
  std::string device;
  int64_t bytes = 0;
};

/// Counts the bytes that a job takes of a device's memory: device_bytes(), and on a GPU the rows
/// that it holds.
int64_t bytes_on(const DeviceTraits& traits, const RunPlan& plan);

/// True if a job with this wish may ever run there.
bool may_use(DeviceWish wish, const Device& device);

/// The device with the most free memory among those that the job may use; for several GPUs, the one
/// with the least in the best group of equal ones. Empty if there are not that many. `held` does
/// not count as others'. `cpu_limit_bytes` bounds the CPU's memory; 0: no bound besides its size.
MemoryRoom largest_room(DeviceWish wish, int32_t gpus, const Devices& devices,
                        std::span<const HeldMemory> held, int64_t cpu_limit_bytes);

/// Returns "the job needs ... more than ...", without advice.
std::string shortage_text(int64_t plan_bytes, const MemoryRoom& room);

}  // namespace trainyard
