// src/train/metric_buffer.h: collects metric points and passes them to the reporter in batches. A
// step of a small model takes a quarter of a millisecond, in which a call per point would be
// noticeable.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "src/job/reporter.h"

namespace trainyard {

class MetricBuffer {
 public:
  using Clock = std::chrono::steady_clock;  // affects only when points are reported
  static constexpr size_t kPointsMax =
      65536;  // 3 MB; filled by 300,000 points per second within kInterval
  static constexpr std::chrono::milliseconds kInterval{200};

  explicit MetricBuffer(Reporter& reporter) : reporter_(reporter), last_flush_(Clock::now()) {}
  void add(std::string_view key, int64_t step, double value) {
    points_.push_back({std::string(key), step, value});
  }
  /// Returns whether the points should be reported now.
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
