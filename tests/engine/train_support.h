// tests/engine/train_support.h: small datasets, and a reporter that records everything, for tests
// of training.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <functional>
#include <map>
#include <stop_token>
#include <string>
#include <vector>

#include "src/base/files.h"
#include "src/data/dataset.h"
#include "src/job/reporter.h"
#include "src/job/run_plan.h"

namespace trainyard::testing {

/// A temporary folder, deleted with the object.
class Workspace {
 public:
  Workspace() {
    std::string pattern = (std::filesystem::temp_directory_path() / "train-test-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~Workspace() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

/// Ingests rows of Philox numbers. With `images`, they are [1, 8, 8] images of 3 classes (a bright
/// third and noise); otherwise 5 numeric columns with a numeric target that is linear in them plus
/// noise. `test_rows` > 0 adds a test set.
std::filesystem::path make_dataset(const Workspace& workspace, bool images, int64_t rows,
                                   int64_t test_rows = 0);

/// Returns a small convolutional network with every kind of layer that has state or draws numbers.
ModelSpec image_model(double dropout = 0.3);

class Recorder final : public Reporter {
 public:
  void started(const RunPlan& p) override { plan = p; }
  void progressed() override {
    ++signs;
    if (on_progress) on_progress(signs);
  }
  void metrics(std::span<const MetricPoint> points) override {
    ++batches;
    for (const MetricPoint& m : points) {
      series[m.key][m.step] = m.value;
      if (m.key == "train/loss" && m.step == stop_step && stop != nullptr) stop->request_stop();
    }
  }
  void checkpoint_saved(int64_t step, const std::filesystem::path&) override {
    saved.push_back(step);
    if (on_checkpoint) on_checkpoint(step);
  }
  void checkpoint_failed(int64_t step, const Error& error) override {
    failed.emplace_back(step, error);
  }
  void log(std::string_view message) override { lines.emplace_back(message); }
  void warn(std::string_view message) override { warnings.emplace_back(message); }
  /// Returns the first line or warning that contains `part`; empty if none does. The other lines
  /// depend on the device.
  std::string line_with(std::string_view part) const {
    for (const auto* texts : {&lines, &warnings}) {
      for (const std::string& text : *texts) {
        if (text.find(part) != text.npos) return text;
      }
    }
    return "";
  }

  RunPlan plan;
  int64_t signs = 0;  // number of progress reports
  int batches = 0;
  std::map<std::string, std::map<int64_t, double>> series;  // by key and step
  std::vector<int64_t> saved;
  std::vector<std::pair<int64_t, Error>> failed;
  std::vector<std::string> lines, warnings;
  std::function<void(int64_t)> on_checkpoint;
  // Stops the run exactly after this step, if the step has a checkpoint: the loss is reported
  // before the checkpoint.
  int64_t stop_step = 0;
  std::stop_source* stop = nullptr;
  std::function<void(int64_t)> on_progress;  // called with `signs`
};

/// Returns the file's bytes; a missing file fails the test.
std::string bytes_of(const std::filesystem::path& path);

}  // namespace trainyard::testing
