// server/handlers/time_range.h: converts the scheduler's times to protobuf messages.
#pragma once

#include "server/scheduler/scheduler.h"
#include "server/store/proto_time.h"
#include "trainyard/v1/job_service.pb.h"

namespace trainyard::server {

/// `range` must be known.
inline v1::TimeRange to_proto(const Range& range) {
  v1::TimeRange out;
  *out.mutable_low() = to_timestamp(range.low_us);
  *out.mutable_likely() = to_timestamp(range.likely_us);
  *out.mutable_high() = to_timestamp(range.high_us);
  return out;
}

}  // namespace trainyard::server
