// server/housekeeping/clock_jumps.h: finds the times at which the wall clock was set forward, so
// that a jump makes no job old. Ages of jobs are differences of wall times; without this, a clock
// that jumps by 400 days would delete jobs that ended minutes before.
//
// A file in the state folder has the wall time and the time since boot of the last observation. If
// the wall clock has advanced by more than the time since boot, it has jumped. What happens between
// two boots cannot be known, and counts as time that has passed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "src/base/clock.h"
#include "src/base/files.h"
#include "src/base/mutex.h"

namespace trainyard::server {

/// Returns the kernel's ID of this boot; empty if it is not known.
std::string current_boot_id();
/// Returns the microseconds since this boot, with those in which the machine was suspended.
int64_t time_since_boot_us();

/// Thread-safe.
class ClockJumps {
 public:
  static constexpr int64_t kToleranceUs = 60'000'000;  // clocks are adjusted by less all the time
  static constexpr size_t kJumpsMax = 64;

  /// `file` is created by the first observation. `boot_id` changes with every boot, since which
  /// `boot_us` counts.
  ClockJumps(Files& files, std::filesystem::path file, const Clock& clock,
             std::string boot_id = current_boot_id(),
             std::function<int64_t()> boot_us = &time_since_boot_us);

  /// Compares the clocks with the last observation, of this daemon or an earlier one.
  void observe();
  /// Returns the wall time before which a job must have ended so that `age_us` have passed between
  /// its end and the wall time `now_us`.
  int64_t ended_before(int64_t now_us, int64_t age_us) const;

 private:
  struct Jump {
    int64_t before_us = 0;  // the wall time that the jump left
    int64_t amount_us = 0;
  };
  struct Record {
    std::string boot_id;
    int64_t boot_us = 0;
    int64_t wall_us = 0;
    std::vector<Jump> jumps;  // in the order of their times
  };
  void read();
  void write(const Record& record);
  /// Adds a jump, or takes one back from the newest ones if it is negative.
  void add(int64_t before_us, int64_t amount_us) TRAINYARD_REQUIRES(mu_);

  Files& files_;
  const std::filesystem::path file_;
  const Clock& clock_;
  const std::string boot_id_;
  const std::function<int64_t()> boot_us_;
  mutable Mutex mu_;
  Record last_ TRAINYARD_GUARDED_BY(mu_);
};

}  // namespace trainyard::server
