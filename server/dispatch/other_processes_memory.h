// server/dispatch/other_processes_memory.h: estimates the memory of a device that is used by other
// processes, which run no job of this server.
//
// NVML and the kernel report how much memory of a device is in use, but not by which process (in a
// container the PIDs of other processes are useless). The estimate is the memory in use minus the
// planned bytes of the server's jobs. A starting job has allocated between nothing and its plan. So
// while a job starts, the estimate keeps its earlier value, as far as the measured use allows that.
// When a worker dies, its memory is freed before the daemon learns of its end. Until then the
// estimate is too small by the job's plan. So if a job ends soon after the estimate has dropped, up
// to its plan is added back. A process that comes while a job starts may be mistaken for that job.
//
// Processes that keep models loaded for predictions count as other processes. Their number and
// memory have bounds of their own (warm_memory_bytes_max), and a call that finds its model loaded
// is worth more than a job that starts some seconds sooner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "server/scheduler/fleet.h"

namespace trainyard::server {

class OtherProcessesMemory {
 public:
  /// Estimates up to this size count as 0, because such amounts fluctuate.
  static constexpr int64_t kIgnoredBytes = int64_t{64} << 20;
  /// The daemon learns of a worker's death within this time.
  static constexpr int64_t kEndKnownUs = 10'000'000;

  /// Returns the estimate in bytes. `device` must have just been read; `fleet` has the jobs on it.
  int64_t estimate(const Device& device, const Fleet& fleet) const;
  /// Returns estimate() and stores it as the earlier value for the next calls.
  int64_t update(const Device& device, const Fleet& fleet, int64_t now_us);

 private:
  struct Known {
    int64_t estimated_bytes = 0;
    int64_t drop_bytes = 0;  // by how much the estimate dropped recently, and when it last dropped
    int64_t drop_time_us = 0;
    // Jobs that had their memory at the drop: hash of the uid, planned bytes.
    std::vector<std::pair<size_t, int64_t>> jobs_at_drop;
  };
  int64_t estimated_bytes(const Device& device, const Fleet& fleet) const;
  static int64_t counted_bytes(const Device& device, int64_t estimated_bytes);

  std::unordered_map<std::string, Known> known_;  // by the device's name
};

}  // namespace trainyard::server
