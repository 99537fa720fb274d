// server/service/memory_fit.h: whether a job's memory plan fits on a device of this server.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "server/inventory/inventory.h"
#include "server/scheduler/scheduler.h"
#include "server/store/job.h"

namespace trainyard::server {

/// What a device could give to one job while no other job of this server runs.
struct Room {
  std::string device;
  int64_t memory_bytes = 0;    // of the device, or the server's limit for it
  int64_t others_bytes = 0;    // in use by programs that are no jobs of this server
  int64_t overhead_bytes = 0;  // that a job takes besides its plan (Device::overhead_bytes)
  int64_t available_bytes() const { return std::max<int64_t>(0, memory_bytes - others_bytes); }
  /// What is left for a plan.
  int64_t plan_bytes_max() const {
    return std::max<int64_t>(0, available_bytes() - overhead_bytes);
  }
};

/// True if a job with this wish may ever run there.
bool may_use(DeviceWish wish, const Device& device);

/// The device with most room among those that the job may use; for several GPUs, of the ones alike
/// with most room that with least. Empty where there are not so many. `active` are the jobs that
/// run now: what they planned with comes back, so it does not count as others'. Without a known
/// size, memory_bytes is 0. `cpu_limit_bytes` bounds the CPU's memory; 0: its size does.
Room largest_room(DeviceWish wish, int32_t gpus, const Devices& devices,
                  const std::vector<Job>& active, int64_t cpu_limit_bytes);

/// "The job needs ... more than ...", without what would help.
std::string shortage_text(int64_t plan_bytes, const Room& room);

}  // namespace trainyard::server
