// server/protocol/time_limit.h: how long before its cluster allocation ends a worker stops by
// itself, so that the job continues from its checkpoint in the next allocation. The worker uses
// this time, and so does the forecast of how many allocations a job takes.
#pragma once

#include <algorithm>
#include <cstdint>

namespace trainyard {

/// Returns the seconds at the end of an allocation of `limit_s` seconds that are reserved for the
/// last checkpoint: 60, or a tenth of a limit below 600 s.
constexpr int64_t stop_before_s(int64_t limit_s) {
  constexpr int64_t kStopBeforeS = 60;
  return std::clamp<int64_t>(limit_s / 10, 0, kStopBeforeS);
}

}  // namespace trainyard
