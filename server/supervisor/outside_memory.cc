#include "server/supervisor/outside_memory.h"

#include <algorithm>

namespace trainyard::server {

int64_t OutsideMemory::estimate(const Device& device, const Fleet& fleet) {
  if (device.memory_bytes == 0) return 0;
  int64_t running = 0, uncertain = 0;  // planned by jobs that have it, or may have it
  for (const PlacedJob* job : fleet.jobs_on(device.name)) {
    (job->running && !job->stopping ? running : uncertain) += job->bytes + device.overhead_bytes;
  }
  const int64_t most = std::max<int64_t>(0, device.memory_used_bytes - running);
  const int64_t least = std::max<int64_t>(0, most - uncertain);
  int64_t& last = last_[device.name];
  last = std::clamp(last, least, most);
  return last > kIgnoredBytes ? std::min(last, device.memory_bytes) : 0;
}

}  // namespace trainyard::server
