#include <algorithm>

#include "proto/convert/resources.h"
#include "server/scheduler/cluster.h"
#include "server/scheduler/scheduler.h"

namespace trainyard::server {
namespace {

std::optional<DeviceKind> kind_of(const std::vector<std::string>& devices) {
  if (devices.empty() || !cluster_of(devices).empty()) return std::nullopt;
  return devices.front() == "devices/cpu" ? DeviceKind::kCpu : DeviceKind::kGpu;
}

int64_t to_us(double seconds) {
  constexpr double kLongestS = 1e9;  // about 30 years, so that sums of such times do not overflow
  return static_cast<int64_t>(std::clamp(seconds, 0.0, kLongestS) * 1e6);
}

Range range_of(double low_s, double likely_s, double high_s) {
  if (likely_s <= 0) return {};
  return {to_us(std::min(low_s, likely_s)), to_us(likely_s), to_us(std::max(likely_s, high_s))};
}

Need need_of(const DeviceBrief& on, int64_t most_us) {
  return {on.bytes, bounded(range_of(on.rest_low_s, on.rest_s, on.rest_high_s), most_us)};
}

/// Returns the run time that the time limit leaves, from the next start on, or from `time_us` on
/// while the job runs.
int64_t rest_max_of(const JobBrief& job) {
  // The limit is exceeded: the job ends soon after its next start.
  constexpr int64_t kLeastUs = 1'000'000;
  if (!job.resources.has_time_limit_seconds()) return kUnlimited;
  int64_t left_us = to_us(static_cast<double>(job.resources.time_limit_seconds()));
  left_us -= job.run_time_us;
  if (job.running_since_us > 0) left_us -= job.time_us - job.running_since_us;
  return std::max(kLeastUs, left_us);
}

}  // namespace

QuotaNeed WaitingJob::quota_need() const {
  int64_t most_us = rest_max_us;
  for (const DeviceKind kind : {DeviceKind::kCpu, DeviceKind::kGpu}) {
    const DeviceWish other = kind == DeviceKind::kCpu ? DeviceWish::kGpu : DeviceWish::kCpu;
    if (asked.wish == other || !on(kind).rest.known()) continue;
    most_us = std::min(most_us, on(kind).rest.likely_us);
  }
  return {project, owner, device_count, most_us == kUnlimited ? 0 : most_us * device_count};
}

Range bounded(Range range, int64_t most_us) {
  for (int64_t* us : {&range.low_us, &range.likely_us, &range.high_us}) {
    *us = std::min(*us, most_us);
  }
  return range;
}

std::optional<WaitingJob> waiting_job(const JobBrief& job) {
  if (job.state != JobState::kQueued || job.cancel_requested || job.waits_for > 0) {
    return std::nullopt;
  }
  WaitingJob waiting;
  waiting.uid = job.uid;
  waiting.order = job.order;
  waiting.priority = job.priority;
  waiting.asked = {wish_of(job.resources),
                   gpus_of(job.resources),
                   kind_of(job.devices),
                   job.resources.exclusive(),
                   std::max(1, job.resources.threads()),
                   job.bf16,
                   job.mapped};
  waiting.name = job.id;
  waiting.cluster = job.resources.cluster();
  waiting.owner = job.owner;
  waiting.rest_max_us = rest_max_of(job);
  waiting.on_cpu = need_of(job.on_cpu, waiting.rest_max_us);
  waiting.on_gpu = need_of(job.on_gpu, waiting.rest_max_us);
  waiting.workers_lost = job.workers_lost;
  waiting.retry_time_us = job.retry_time_us;
  waiting.wait_since_us = job.time_us;
  waiting.device_count = devices_wanted(job.resources);
  waiting.project = job.project;
  return waiting;
}

Range end_of(double low_s, double likely_s, double high_s, int64_t from_us) {
  Range end = range_of(low_s, likely_s, high_s);
  if (!end.known()) return end;
  for (int64_t* us : {&end.low_us, &end.likely_us, &end.high_us}) *us += from_us;
  return end;
}

std::optional<PlacedJob> placed_job(const JobBrief& job) {
  if (!is_active(job.state) || job.devices.empty()) return std::nullopt;
  const DeviceBrief& on = kind_of(job.devices) == DeviceKind::kCpu ? job.on_cpu : job.on_gpu;
  PlacedJob placed;
  placed.uid = job.uid;
  placed.devices = job.devices;
  placed.name = job.id;
  placed.owner = job.owner;
  placed.project = job.project;
  placed.priority = job.priority;
  placed.bytes = on.bytes;
  if (kind_of(job.devices) == DeviceKind::kCpu) placed.mapped = job.mapped;
  placed.threads = std::max(1, job.resources.threads());
  placed.exclusive = job.resources.exclusive();
  placed.running = job.state == JobState::kRunning;
  placed.start_time_us = placed.saved_time_us = job.time_us;
  placed.end = end_of(on.rest_low_s, on.rest_s, on.rest_high_s, job.time_us);
  if (const int64_t most_us = rest_max_of(job); most_us != kUnlimited) {
    placed.end_max_us = job.time_us + most_us;
  }
  return placed;
}

}  // namespace trainyard::server
