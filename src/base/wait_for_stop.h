// src/base/wait_for_stop.h: a sleep that a request to stop ends.
#pragma once

#include <chrono>
#include <stop_token>

namespace trainyard {

/// Returns after `time_max` (at most a year), or as soon as `stop` is requested.
void wait_for_stop(const std::stop_token& stop, std::chrono::duration<double> time_max);

}  // namespace trainyard
