#include "server/dispatch/other_processes_memory.h"

#include <algorithm>
#include <functional>
#include <string_view>

namespace trainyard::server {
namespace {

bool has_its_memory(const PlacedJob& job) { return job.running && !job.stopping; }

size_t hash_of(const PlacedJob& job) { return std::hash<std::string_view>()(job.uid); }

/// Returns whether the job with this hash is running on the device; a stopping job counts too,
/// because its plan is still counted.
bool is_there(size_t hash, const Device& device, const Fleet& fleet) {
  return std::ranges::any_of(fleet.jobs_on(device.name), [&](const PlacedJob* job) {
    return job->running && hash_of(*job) == hash;
  });
}

}  // namespace

int64_t OtherProcessesMemory::estimate(const Device& device, const Fleet& fleet) const {
  return counted_bytes(device, estimated_bytes(device, fleet));
}

int64_t OtherProcessesMemory::update(const Device& device, const Fleet& fleet, int64_t now_us) {
  const int64_t estimated = estimated_bytes(device, fleet);
  Known& known = known_[device.name];
  const int64_t less = known.estimated_bytes - estimated;
  known.estimated_bytes = estimated;
  if (less > 0) {
    if (now_us - known.drop_time_us >= kEndKnownUs) known.drop_bytes = 0;
    known.drop_bytes += less;
    known.drop_time_us = now_us;
    known.jobs_at_drop.clear();
    for (const PlacedJob* job : fleet.jobs_on(device.name)) {
      if (!has_its_memory(*job)) continue;
      known.jobs_at_drop.emplace_back(hash_of(*job), job->bytes + device.overhead_bytes);
    }
  } else {
    std::erase_if(known.jobs_at_drop,
                  [&](const auto& one) { return !is_there(one.first, device, fleet); });
    known.drop_bytes = std::max<int64_t>(0, known.drop_bytes + less);
    if (known.drop_bytes == 0 || now_us - known.drop_time_us >= kEndKnownUs)
      known.jobs_at_drop.clear();
  }
  return counted_bytes(device, estimated);
}

int64_t OtherProcessesMemory::estimated_bytes(const Device& device, const Fleet& fleet) const {
  const auto jobs = fleet.jobs_on(device.name);
  // Planned bytes of jobs that have their memory, and of jobs that may have it.
  int64_t running = 0, uncertain = 0;
  for (const PlacedJob* job : jobs) {
    (has_its_memory(*job) ? running : uncertain) += job->bytes + device.overhead_bytes;
  }
  const int64_t most = std::max<int64_t>(0, device.memory_used_bytes - running);
  const int64_t least = std::max<int64_t>(0, most - uncertain);
  const auto known = known_.find(device.name);
  if (known == known_.end()) return least;
  int64_t gone = 0;  // planned bytes of jobs that have left since the estimate last dropped
  for (const auto& [hash, bytes] : known->second.jobs_at_drop) {
    if (!is_there(hash, device, fleet)) gone += bytes;
  }
  const int64_t estimated =
      known->second.estimated_bytes + std::min(gone, known->second.drop_bytes);
  return std::clamp(estimated, least, most);
}

int64_t OtherProcessesMemory::counted_bytes(const Device& device, int64_t estimated_bytes) {
  return estimated_bytes > kIgnoredBytes ? std::min(estimated_bytes, device.memory_bytes) : 0;
}

}  // namespace trainyard::server
