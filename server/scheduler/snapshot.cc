#include <utility>

#include "server/scheduler/scheduler.h"

namespace trainyard::server {

DeviceWish wish_of(const v1::JobSpec& spec) {
  switch (spec.resources().device()) {
    case v1::Resources::CPU:
      return DeviceWish::kCpu;
    case v1::Resources::GPU:
      return DeviceWish::kGpu;
    default:
      return DeviceWish::kAuto;
  }
}

int32_t gpus_of(const v1::JobSpec& spec) {
  return spec.resources().has_gpus() ? spec.resources().gpus() : 1;
}

namespace {

std::optional<DeviceKind> kind_of(const std::string& device) {
  if (device.empty()) return std::nullopt;
  return device == "devices/cpu" ? DeviceKind::kCpu : DeviceKind::kGpu;
}

}  // namespace

Snapshot make_snapshot(const std::vector<Job>& unfinished, Devices devices, bool draining) {
  Snapshot snapshot;
  snapshot.inventory = std::move(devices);
  snapshot.draining = draining;
  for (const Job& job : unfinished) {
    if (is_active(job.state)) {
      snapshot.placed.push_back({job.uid, job.devices});
    } else if (job.state == JobState::kQueued && !job.cancel_requested) {
      snapshot.waiting.push_back({job.uid, job.order, job.priority, wish_of(job.spec),
                                  gpus_of(job.spec), kind_of(job.device()), job.workers_lost,
                                  job.retry_time_us});
    }
  }
  return snapshot;
}

}  // namespace trainyard::server
