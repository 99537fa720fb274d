// server/store/proto_time.h: converts the store's microseconds to a protobuf Timestamp and back.
#pragma once

#include <cstdint>
#include <string>

#include "google/protobuf/timestamp.pb.h"
#include "src/base/result.h"

namespace trainyard::server {

inline google::protobuf::Timestamp to_timestamp(int64_t time_us) {
  google::protobuf::Timestamp t;
  t.set_seconds(time_us / 1'000'000);
  t.set_nanos(static_cast<int32_t>(time_us % 1'000'000 * 1000));
  return t;
}

/// Returns the microseconds of a request's field; 0 if it is not set. FIELD_OUT_OF_RANGE.
inline Result<int64_t> from_timestamp(const char* field, const google::protobuf::Timestamp& time) {
  constexpr int64_t kSecondsMax = 253'402'300'799;  // the year 9999, as google.protobuf.Timestamp
  if (time.seconds() < 0 || time.seconds() > kSecondsMax || time.nanos() < 0 ||
      time.nanos() > 999'999'999) {
    return field_error("FIELD_OUT_OF_RANGE", field,
                       "is not a time, expected seconds in 0.." + std::to_string(kSecondsMax) +
                           " and nanos in 0..999999999");
  }
  return time.seconds() * 1'000'000 + time.nanos() / 1000;
}

}  // namespace trainyard::server
