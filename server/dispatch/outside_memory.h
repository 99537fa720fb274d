// server/dispatch/outside_memory.h: what processes that run no job of ours hold of a device.
//
// NVML and the kernel tell how much of a device is in use, not by whom (in a container the numbers
// of other processes are of no use to us). Less what our jobs have planned it is the others'. A job
// that starts has taken something between nothing and its plan, so while one does the estimate
// keeps to what was known before, as far as the measured use allows that. A worker that dies gives
// its memory back before we know of its end: until then the others seem to hold less by its plan.
// So if one of the jobs is gone soon after the others have become less, they have not, as far as
// its plan goes. Who comes while a job starts may be taken for that job.
//
// Models that are kept warm for calls count as others: their number and memory have bounds of their
// own (warm_memory_bytes_max), and a call that finds its model in memory is worth more than a job
// that starts some seconds sooner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "server/scheduler/fleet.h"

namespace trainyard::server {

class OutsideMemory {
 public:
  /// Less than this comes and goes, and is not counted.
  static constexpr int64_t kIgnoredBytes = int64_t{64} << 20;
  /// After a worker's death its end is known within this.
  static constexpr int64_t kEndKnownUs = 10'000'000;

  /// Bytes, by the device as just read and the jobs that `fleet` has on it.
  int64_t estimate(const Device& device, const Fleet& fleet) const;
  /// The same, and what was known before from now on.
  int64_t update(const Device& device, const Fleet& fleet, int64_t now_us);

 private:
  struct Known {
    int64_t held_bytes = 0;
    int64_t less_bytes = 0;  // than before, and when that was last so
    int64_t less_time_us = 0;
    std::vector<std::pair<size_t, int64_t>> ours;  // had their memory then: hash, bytes
  };
  int64_t held_bytes(const Device& device, const Fleet& fleet) const;
  static int64_t counted_bytes(const Device& device, int64_t held_bytes);

  std::unordered_map<std::string, Known> known_;  // by the device's name
};

}  // namespace trainyard::server
