// server/scheduler/shares.h: each owner's recent use of devices.
//
// Use is measured in device-seconds: the number of a job's devices times the seconds it has had
// them. Past use decays exponentially with a half-life. The data is in memory; the dispatcher loads
// it from the store at its start (server/store/owner_uses.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

namespace trainyard::server {

class Shares {
 public:
  /// Each device that an owner has now counts for this additional time, so that jobs that start in
  /// one pass are spread over the owners.
  static constexpr int64_t kLeastUs = 600'000'000;

  /// With `half_life_us` 0 every owner's usage is 0.
  explicit Shares(int64_t half_life_us = 0) : half_life_us_(half_life_us) {}

  /// Adds usage from the store, which has decayed until `as_of_us`.
  void add(const std::string& owner, double used, int64_t as_of_us, int64_t now_us);
  /// Adds the past usage of `devices` devices from `start_us` to `end_us`, decayed until `now_us`.
  void add(const std::string& owner, int64_t devices, int64_t start_us, int64_t end_us,
           int64_t now_us);
  /// Records that the owner has `devices` more devices from now on, or fewer if negative.
  void change(const std::string& owner, int64_t devices, int64_t now_us);
  /// Returns the owner's usage in device-seconds, including kLeastUs for each device that the owner
  /// has now.
  double usage(const std::string& owner, int64_t now_us) const;
  void clear() { owners_.clear(); }
  bool enabled() const { return half_life_us_ > 0; }

 private:
  struct Owner {
    double used = 0;  // device-seconds at the time as_of_us
    int64_t as_of_us = 0;
    int64_t devices = 0;  // number of devices that the owner has now
  };
  double used_by(const Owner& owner, int64_t now_us) const;

  const int64_t half_life_us_;
  std::unordered_map<std::string, Owner> owners_;
};

}  // namespace trainyard::server
