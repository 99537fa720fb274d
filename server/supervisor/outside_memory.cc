#include "server/supervisor/outside_memory.h"

#include <algorithm>

namespace trainyard::server {

int64_t OutsideMemory::estimate(const Device& device, const Fleet& fleet) const {
  return counted_bytes(device, held_bytes(device, fleet));
}

int64_t OutsideMemory::update(const Device& device, const Fleet& fleet) {
  const int64_t held = held_bytes(device, fleet);
  last_[device.name] = held;
  return counted_bytes(device, held);
}

int64_t OutsideMemory::held_bytes(const Device& device, const Fleet& fleet) const {
  int64_t running = 0, uncertain = 0;  // planned by jobs that have it, or may have it
  for (const PlacedJob* job : fleet.jobs_on(device.name)) {
    (job->running && !job->stopping ? running : uncertain) += job->bytes + device.overhead_bytes;
  }
  const int64_t most = std::max<int64_t>(0, device.memory_used_bytes - running);
  const int64_t least = std::max<int64_t>(0, most - uncertain);
  const auto last = last_.find(device.name);
  return std::clamp(last != last_.end() ? last->second : 0, least, most);
}

int64_t OutsideMemory::counted_bytes(const Device& device, int64_t held_bytes) {
  return held_bytes > kIgnoredBytes ? std::min(held_bytes, device.memory_bytes) : 0;
}

}  // namespace trainyard::server
