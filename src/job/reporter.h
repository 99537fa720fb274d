// src/job/reporter.h: what a run reports while it goes on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.h"
#include "src/job/run_clock.h"
#include "src/job/run_plan.h"

namespace trainyard {

struct MetricPoint {
  std::string key;  // "train/loss", "val/accuracy"
  int64_t step = 0;
  double value = 0;
};

/// Receives what a run reports; called from the training thread and must not block it. All methods
/// but started() may be called many times.
class Reporter {
 public:
  virtual ~Reporter() = default;
  virtual void started(const RunPlan& plan) = 0;
  /// A step is finished, or a batch of an evaluation: whoever watches knows that the run goes on.
  virtual void progressed() = 0;
  virtual void metrics(std::span<const MetricPoint> points) = 0;
  virtual void checkpoint_saved(int64_t step, const std::filesystem::path& path) = 0;
  virtual void checkpoint_failed(int64_t step, const Error& error) = 0;
  virtual void log(std::string_view message) = 0;
  /// A sentence about the data or the result that people should see.
  virtual void warn(std::string_view message) { log(message); }
  /// Reports the time that the run has taken so far, as often as metrics are reported.
  virtual void times(const RunTimes& /*times*/) {}
};

/// [label][prediction] by "val" and "test": rows counted.
using ConfusionMatrices = std::map<std::string, std::vector<std::vector<int64_t>>>;

}  // namespace trainyard
