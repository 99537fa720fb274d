// src/job/reporter.h: the interface through which a run reports its progress and results.
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

/// Receives the reports of a run. The training thread calls all methods, so they must not block.
/// started() is called once, the others any number of times.
class Reporter {
 public:
  virtual ~Reporter() = default;
  virtual void started(const RunPlan& plan) = 0;
  /// Called after each step and each batch of an evaluation, which shows that the run makes
  /// progress.
  virtual void progressed() = 0;
  virtual void metrics(std::span<const MetricPoint> points) = 0;
  virtual void checkpoint_saved(int64_t step, const std::filesystem::path& path) = 0;
  virtual void checkpoint_failed(int64_t step, const Error& error) = 0;
  virtual void log(std::string_view message) = 0;
  /// Called with a sentence about the data or the result that the user should see.
  virtual void warn(std::string_view message) { log(message); }
  /// Reports the time that the run has taken so far, as often as metrics are reported.
  virtual void times(const RunTimes& /*times*/) {}
};

/// The confusion matrices of "val" and "test": counts of rows, [label][prediction].
using ConfusionMatrices = std::map<std::string, std::vector<std::vector<int64_t>>>;

}  // namespace trainyard
