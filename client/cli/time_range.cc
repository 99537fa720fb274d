#include "client/cli/time_range.h"

#include <algorithm>

#include "client/cli/output.h"

namespace trainyard::cli {

std::string when(const v1::TimeRange& range, int64_t now_s) {
  const auto from_now = [&](const google::protobuf::Timestamp& time) {
    return static_cast<double>(std::max<int64_t>(0, time.seconds() - now_s));
  };
  const double low = from_now(range.low());
  const double likely = from_now(range.likely());
  const double high = from_now(range.high());
  if (high < 1) return "now";
  std::string text = "in " + human_duration(likely);
  if (human_duration(low) != human_duration(high)) {
    text += " (" + human_duration(low) + " to " + human_duration(high) + ")";
  }
  return text;
}

}  // namespace trainyard::cli
