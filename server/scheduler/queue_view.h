// server/scheduler/queue_view.h: the queue and the devices as people see them.
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

/// A waiting job as people see it.
struct QueuedJob {
  std::string uid, id, owner;
  int32_t priority = 0;
  int64_t position = 0;  // from 1; 0: behind kQueueProjectedMax others
  Range start, end;      // wall time, as things stand
  std::string device;
  WaitReason why;  // empty: not looked at yet
};
struct QueueView {
  std::vector<QueuedJob> jobs;  // in the order in which they may start
  int64_t waiting = 0;          // of all
};
/// Jobs whose start is computed at most, for one call.
inline constexpr size_t kQueueProjectedMax = 2000;

/// What holds a device.
struct DeviceView {
  int64_t others_bytes = 0;  // by what are no jobs of ours
  std::vector<PlacedJob> jobs;
};

/// The first `count_max` waiting jobs, or with a uid that one, if it waits. `waits` is of the last
/// look.
QueueView view_queue(const Queue& queue, const Fleet& fleet, const Shares& shares,
                     const WaitReasons& waits, const Policy& policy, int64_t now_us,
                     size_t count_max, const std::string& uid);

}  // namespace trainyard::server
