// server/scheduler/projection.h: when the waiting jobs are expected to start and to end.
//
// As things stand: the queue is walked in its order, each job starts where it fits first by the
// forecasts of those that run and of those before it, and nobody else comes. Computed when someone
// asks, three times: by the lower, the likely and the upper forecasts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "server/scheduler/scheduler.h"

namespace trainyard::server {

struct Projected {
  std::string uid;
  Range start, end;    // wall time; unknown where a forecast is missing
  std::string device;  // the first, by the likely forecasts; empty: unknown
};
/// The first `count_max` waiting jobs, in order; none behind `last_uid`.
std::vector<Projected> project(const Queue& queue, const Fleet& fleet, const Shares& shares,
                               int64_t now_us, size_t count_max, std::string_view last_uid = {});

}  // namespace trainyard::server
