// server/protocol/time_limit.h: how long before the end of its place a worker stops by itself, so
// that the job goes on from its checkpoint in the next one. The worker goes by it, and so does
// whoever forecasts how many places a job takes.
#pragma once

#include <algorithm>
#include <cstdint>

namespace trainyard {

/// Seconds that a place of `limit_s` seconds keeps for the last checkpoint: a minute, or of a short
/// time a tenth.
constexpr int64_t stop_before_s(int64_t limit_s) {
  constexpr int64_t kStopBeforeS = 60;
  return std::clamp<int64_t>(limit_s / 10, 0, kStopBeforeS);
}

}  // namespace trainyard
