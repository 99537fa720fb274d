// client/cli/time_range.h: shows expected times to people.
#pragma once

#include <cstdint>
#include <string>

#include "trainyard/v1/job_service.pb.h"

namespace trainyard::cli {

/// Returns the range relative to `now_s` (seconds since 1970): "now", "in 12 min", "in 2.0 h (1.5 h
/// to 3.0 h)".
std::string when(const v1::TimeRange& range, int64_t now_s);

}  // namespace trainyard::cli
