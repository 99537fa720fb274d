// server/scheduler/slots.h: what decide() goes by for one job: the slots that are free, the kind of
// device for the job, and why it waits where that kind has none.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "server/scheduler/scheduler.h"

namespace trainyard::server {

/// Free slots per device, in the order of the inventory. `devices` must outlive it.
class Slots {
 public:
  Slots(const std::vector<Device>& devices, const std::vector<PlacedJob>& placed);
  /// Whether that many devices of this kind and of one model are usable, busy or not.
  bool has_kind(DeviceKind kind, int32_t count = 1) const;
  /// The same, including those that may be usable in some seconds.
  bool will_have_kind(DeviceKind kind, int32_t count = 1) const;
  /// Some device is being checked.
  bool checks_any() const { return checks_any_; }
  /// Any device of this kind, usable now or not.
  bool lists_kind(DeviceKind kind) const;
  /// The first `count` free devices of one model; empty if there are fewer.
  std::vector<const Device*> find_free(DeviceKind kind, int32_t count) const;
  void take(const Device& device) { --free_[device.name]; }
  /// Hides the devices of which `count` alike are usable now or soon: a job that needs that many
  /// waits for them.
  void keep(DeviceKind kind, int32_t count);

 private:
  struct Alike {
    int32_t usable = 0, usable_soon = 0;
  };
  bool is_free(const Device& d) const;

  const std::vector<Device>& devices_;
  std::map<std::pair<DeviceKind, std::string>, Alike> alike_;  // by alike()
  bool checks_any_ = false;
  std::map<std::string, int32_t> free_;  // below 0 if a device's slots were cut while jobs run
  std::set<std::string> kept_;
};

struct Choice {
  DeviceKind kind;
  std::string reason;
  std::string message;
};

/// The kind of device, from what is asked for and the server's devices, busy or not.
Choice choose_kind(const DeviceRequest& asked, const Slots& slots, const std::string& gpu_note);

/// Why a job waits for which nothing was free.
WaitReason wait_for_device(const DeviceRequest& asked, DeviceKind kind, const Slots& slots,
                           const std::string& gpu_note);

}  // namespace trainyard::server
