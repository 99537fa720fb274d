// src/base/stop.h: how long work that nobody waits for any more ends.
#pragma once

#include <stop_token>

#include "src/base/result.h"

namespace trainyard {

/// The reason of CANCELLED where work was stopped from outside.
inline constexpr const char* kStopped = "STOPPED";

/// CANCELLED/STOPPED if `stop` is requested. Cheap enough for each round of a loop.
inline Status check_stop(const std::stop_token& stop) {
  if (!stop.stop_requested()) return {};
  return make_error(ErrorCode::kCancelled, kStopped, "nobody waits for the answer any more");
}

}  // namespace trainyard
