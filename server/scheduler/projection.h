// server/scheduler/projection.h: estimates when the waiting jobs will start and end.
//
// The projection walks the queue in its order. It lets each job start where it fits first,
// according to the forecasts of the running jobs and of the jobs before it, and assumes that no
// further jobs arrive. A job that its quota holds back now has no projected start. The projection
// is computed on request, three times: with the lower, the likely and the upper forecasts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "server/scheduler/scheduler.h"

namespace trainyard::server {

struct Projected {
  std::string uid;
  Range start, end;    // wall-clock times; unknown if a forecast is missing
  std::string device;  // the first device in the likely projection; empty: unknown
};
/// Projects the first `count_max` waiting jobs in queue order; stops after `last_uid`.
std::vector<Projected> project(const Queue& queue, const Fleet& fleet, const Shares& shares,
                               int64_t now_us, size_t count_max, std::string_view last_uid = {},
                               const Quotas& quotas = {});

}  // namespace trainyard::server
