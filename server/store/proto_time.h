// server/store/proto_time.h: converts the store's microseconds to a protobuf Timestamp.
#pragma once

#include <cstdint>

#include "google/protobuf/timestamp.pb.h"

namespace trainyard::server {

inline google::protobuf::Timestamp to_timestamp(int64_t time_us) {
  google::protobuf::Timestamp t;
  t.set_seconds(time_us / 1'000'000);
  t.set_nanos(static_cast<int32_t>(time_us % 1'000'000 * 1000));
  return t;
}

}  // namespace trainyard::server
