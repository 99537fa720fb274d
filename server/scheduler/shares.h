// server/scheduler/shares.h: what each owner has used of the devices of late.
//
// In device-seconds: a job's devices times how long it has had them. What was used counts half
// after each half-life. Kept in memory; when the dispatcher starts, it takes it from the store
// (server/store/owner_uses.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

namespace trainyard::server {

class Shares {
 public:
  /// A job that runs counts at least so long, so that several that start at once are shared out.
  static constexpr int64_t kLeastUs = 600'000'000;

  /// `half_life_us` 0: everyone's usage is 0.
  explicit Shares(int64_t half_life_us = 0) : half_life_us_(half_life_us) {}

  /// What the store has kept, as of `as_of_us`.
  void add(const std::string& owner, double used, int64_t as_of_us, int64_t now_us);
  /// Past usage, from `start_us` to `end_us`, as of `now_us`.
  void add(const std::string& owner, int64_t devices, int64_t start_us, int64_t end_us,
           int64_t now_us);
  /// The owner has so many devices more, or fewer, from now on.
  void change(const std::string& owner, int64_t devices, int64_t now_us);
  /// Device-seconds, with kLeastUs of each device that the owner has now.
  double usage(const std::string& owner, int64_t now_us) const;
  void clear() { owners_.clear(); }
  bool enabled() const { return half_life_us_ > 0; }

 private:
  struct Owner {
    double used = 0;  // device-seconds, as of
    int64_t as_of_us = 0;
    int64_t devices = 0;  // that it has now
  };
  double used_by(const Owner& owner, int64_t now_us) const;

  const int64_t half_life_us_;
  std::unordered_map<std::string, Owner> owners_;
};

}  // namespace trainyard::server
