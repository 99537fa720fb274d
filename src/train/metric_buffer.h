// src/train/metric_buffer.h: metric points on their way to the reporter, in batches: a step of a
// small model takes a quarter of a millisecond, and a call per point would show.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "src/job/reporter.h"

namespace trainyard {

class MetricBuffer {
 public:
  using Clock = std::chrono::steady_clock;     // decides when points travel, never what they say
  static constexpr size_t kPointsMax = 65536;  // 3 MB; 300,000 points a second fill it
  static constexpr std::chrono::milliseconds kInterval{200};

  explicit MetricBuffer(Reporter& reporter) : reporter_(reporter), last_flush_(Clock::now()) {}
  void add(std::string_view key, int64_t step, double value) {
    points_.push_back({std::string(key), step, value});
  }
  /// True if the points should travel now.
  bool due() const {
    return points_.size() + 8 > kPointsMax || Clock::now() - last_flush_ >= kInterval;
  }
  void flush() {
    if (!points_.empty()) reporter_.metrics(points_);
    points_.clear();
    last_flush_ = Clock::now();
  }

 private:
  Reporter& reporter_;
  std::vector<MetricPoint> points_;
  Clock::time_point last_flush_;
};

}  // namespace trainyard
