// server/scheduler/fleet.h: the devices and the jobs on them, as decide() goes by them.
//
// An index that is kept up to date change by change, so that a look at ten thousand devices costs
// what has changed on them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "server/scheduler/scheduler.h"

namespace trainyard::server {

class Fleet {
 public:
  Fleet() = default;
  Fleet(const Fleet&) = delete;
  Fleet& operator=(const Fleet&) = delete;

  /// The devices as they are now: what has changed is taken over. Jobs stay on theirs.
  void set_devices(Devices devices);
  /// Puts the job on its devices, or replaces what was known of it.
  void place(PlacedJob job);
  /// Nothing happens if it is not placed.
  void remove(std::string_view uid);
  void clear_jobs();

  const PlacedJob* find(std::string_view uid) const;
  const Devices& devices() const { return devices_; }
  const std::map<std::string, PlacedJob, std::less<>>& placed() const { return placed_; }

 private:
  Devices devices_;
  std::map<std::string, PlacedJob, std::less<>> placed_;
};

}  // namespace trainyard::server
