#include "server/scheduler/fleet.h"

#include <utility>

namespace trainyard::server {

void Fleet::set_devices(Devices devices) { devices_ = std::move(devices); }
void Fleet::place(PlacedJob job) { placed_.insert_or_assign(job.uid, std::move(job)); }
void Fleet::remove(std::string_view uid) {
  if (const auto found = placed_.find(uid); found != placed_.end()) placed_.erase(found);
}
void Fleet::clear_jobs() { placed_.clear(); }
const PlacedJob* Fleet::find(std::string_view uid) const {
  const auto found = placed_.find(uid);
  return found == placed_.end() ? nullptr : &found->second;
}

}  // namespace trainyard::server
