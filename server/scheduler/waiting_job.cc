#include "server/scheduler/scheduler.h"

namespace trainyard::server {
namespace {

std::optional<DeviceKind> kind_of(const std::vector<std::string>& devices) {
  if (devices.empty()) return std::nullopt;
  return devices.front() == "devices/cpu" ? DeviceKind::kCpu : DeviceKind::kGpu;
}

}  // namespace

DeviceWish wish_of(const v1::Resources& resources) {
  switch (resources.device()) {
    case v1::Resources::CPU:
      return DeviceWish::kCpu;
    case v1::Resources::GPU:
      return DeviceWish::kGpu;
    default:
      return DeviceWish::kAuto;
  }
}

int32_t gpus_of(const v1::Resources& resources) {
  return resources.has_gpus() ? resources.gpus() : 1;
}

std::optional<WaitingJob> waiting_job(const JobBrief& job) {
  if (job.state != JobState::kQueued || job.cancel_requested || job.waits_for > 0) {
    return std::nullopt;
  }
  return WaitingJob{
      job.uid,          job.order,
      job.priority,     {wish_of(job.resources), gpus_of(job.resources), kind_of(job.devices)},
      job.workers_lost, job.retry_time_us};
}

}  // namespace trainyard::server
