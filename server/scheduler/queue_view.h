// server/scheduler/queue_view.h: the queue and the devices as the API shows them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "server/scheduler/fleet.h"
#include "server/scheduler/queue.h"
#include "server/scheduler/scheduler.h"
#include "server/scheduler/shares.h"

namespace trainyard::server {

/// A waiting job as the API shows it.
struct QueuedJob {
  std::string uid, id, owner;
  int32_t priority = 0;
  // Position in the queue from 1; 0: more than kQueueProjectedMax jobs are before it.
  int64_t position = 0;
  Range start, end;  // projected wall-clock times (projection.h)
  std::string device;
  WaitReason why;  // empty: no pass has considered the job yet
  std::string project = {};
};
struct QueueView {
  std::vector<QueuedJob> jobs;  // in the order in which they may start
  int64_t waiting = 0;          // the number of all waiting jobs
};
/// The largest number of jobs that one call projects.
inline constexpr size_t kQueueProjectedMax = 2000;

/// The use of a device.
struct DeviceView {
  int64_t others_bytes = 0;  // memory used by processes that are no jobs of this server
  std::vector<PlacedJob> jobs;
};

/// Returns the first `count_max` waiting jobs. If `uid` is not empty, only that job, if it waits.
/// `waits` is the result of the last scheduling pass.
QueueView view_queue(const Queue& queue, const Fleet& fleet, const Shares& shares,
                     const WaitReasons& waits, const Policy& policy, int64_t now_us,
                     size_t count_max, const std::string& uid);

}  // namespace trainyard::server
