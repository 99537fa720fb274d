// src/base/stop.h: cancels long work whose result nobody waits for any more.
#pragma once

#include <stop_token>

#include "src/base/result.h"

namespace trainyard {

/// The reason of a CANCELLED error if the work was stopped from outside.
inline constexpr const char* kStopped = "STOPPED";

/// Returns CANCELLED/STOPPED if a stop is requested. Fast enough for each iteration of a loop.
inline Status check_stop(const std::stop_token& stop) {
  if (!stop.stop_requested()) return {};
  return make_error(ErrorCode::kCancelled, kStopped, "the request was cancelled");
}

}  // namespace trainyard
