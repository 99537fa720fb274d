#include "server/supervisor/outside_memory.h"

#include <algorithm>
#include <functional>
#include <string_view>

namespace trainyard::server {
namespace {

bool has_its_memory(const PlacedJob& job) { return job.running && !job.stopping; }

size_t hash_of(const PlacedJob& job) { return std::hash<std::string_view>()(job.uid); }

}  // namespace

int64_t OutsideMemory::estimate(const Device& device, const Fleet& fleet) const {
  return counted_bytes(device, held_bytes(device, fleet));
}

int64_t OutsideMemory::update(const Device& device, const Fleet& fleet) {
  const int64_t held = held_bytes(device, fleet);
  Known& known = known_[device.name];
  known.held_bytes = held;
  known.ours.clear();
  for (const PlacedJob* job : fleet.jobs_on(device.name)) {
    if (!has_its_memory(*job)) continue;
    known.ours.emplace_back(hash_of(*job), job->bytes + device.overhead_bytes);
  }
  return counted_bytes(device, held);
}

int64_t OutsideMemory::held_bytes(const Device& device, const Fleet& fleet) const {
  const auto jobs = fleet.jobs_on(device.name);
  int64_t running = 0, uncertain = 0;  // planned by jobs that have it, or may have it
  for (const PlacedJob* job : jobs) {
    (has_its_memory(*job) ? running : uncertain) += job->bytes + device.overhead_bytes;
  }
  const int64_t most = std::max<int64_t>(0, device.memory_used_bytes - running);
  const int64_t least = std::max<int64_t>(0, most - uncertain);
  const auto known = known_.find(device.name);
  if (known == known_.end()) return least;
  int64_t held = known->second.held_bytes;
  for (const auto& [hash, bytes] : known->second.ours) {
    const bool still = std::ranges::any_of(
        jobs, [&](const PlacedJob* job) { return has_its_memory(*job) && hash_of(*job) == hash; });
    if (!still) held += bytes;
  }
  return std::clamp(held, least, most);
}

int64_t OutsideMemory::counted_bytes(const Device& device, int64_t held_bytes) {
  return held_bytes > kIgnoredBytes ? std::min(held_bytes, device.memory_bytes) : 0;
}

}  // namespace trainyard::server
