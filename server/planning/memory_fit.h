// server/planning/memory_fit.h: whether a job's memory plan fits on a device of this server.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "proto/convert/spec.h"
#include "server/scheduler/scheduler.h"
#include "server/store/job.h"
#include "src/data/schema.h"
#include "src/plan/device_traits.h"
#include "src/planning/devices.h"

namespace trainyard::server {

/// What a device could provide to one job while no other job of this server runs.
struct MemoryRoom {
  std::string device;
  int64_t memory_bytes = 0;    // of the device, or the server's limit for it
  int64_t others_bytes = 0;    // in use by programs that are not jobs of this server
  int64_t overhead_bytes = 0;  // that a job needs in addition to its plan (Device::overhead_bytes)
  int64_t available_bytes() const { return std::max<int64_t>(0, memory_bytes - others_bytes); }
  /// What is left for a plan.
  int64_t plan_bytes_max() const {
    return std::max<int64_t>(0, available_bytes() - overhead_bytes);
  }
};

/// What a job whose program is for such a device takes of its memory.
int64_t bytes_on(DeviceTraits traits, const v1::MemoryPlan& memory);

/// True if a job with this wish may ever run there.
bool may_use(DeviceWish wish, const Device& device);

/// The device with the most free memory among those that the job may use; for several GPUs, the one
/// with the least in the best group of equal ones. Empty if there are not that many. `active` are
/// the running jobs: their planned memory will be freed, so it does not count as others'. If the
/// size is unknown, memory_bytes is 0. `cpu_limit_bytes` bounds the CPU's memory; 0: no bound
/// besides its size.
MemoryRoom largest_room(DeviceWish wish, int32_t gpus, const Devices& devices,
                        const std::vector<Job>& active, int64_t cpu_limit_bytes);

/// "; a step takes about 27% longer by forecast"; of a choice without forecasts, by what a step
/// computes: "; a step computes 33% more", or nothing if that is the same.
std::string cost_text(const v1::FitChoice& choice, int64_t flops_per_step);

/// "The job needs ... more than ...", without what would help.
std::string shortage_text(int64_t plan_bytes, const MemoryRoom& room);

}  // namespace trainyard::server
