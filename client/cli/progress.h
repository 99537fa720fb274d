// client/cli/progress.h: a run's progress, shown as a bar that is redrawn in place, or as lines in
// a pipe.
//
// The state and its rendering do not depend on jobs, gRPC or clocks, so `watch`, `submit --watch`
// and `local run` share them, and tests compare them as text.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "client/cli/terminal.h"

namespace trainyard::cli {

struct ProgressState {
  std::string title;
  int64_t step = 0;
  int64_t steps_total = 0;
  int64_t steps_per_epoch = 0;
  double samples_per_second = 0;          // 0: not known yet
  double eta_seconds = -1;                // < 0: not known yet
  std::map<std::string, double> metrics;  // newest value by key; at the end those of the result
  bool succeeded = false;

  double share() const;
};

/// Renders one line of at most `width` columns. On a narrow terminal the least important parts are
/// dropped first.
std::string render_bar(const ProgressState& state, int width, bool utf8, bool colour);
/// Renders the state as a log line: "step 120/240  50 %  epoch 5/10  ..."
std::string render_line(const ProgressState& state);

struct ProgressSink {
  bool live = false;  // true for a terminal: one bar, redrawn in place
  bool utf8 = false;
  bool colour = false;
  std::function<int()> width;  // in columns; called at each redraw
  std::function<void(std::string_view)> write;
  std::function<double()> now;  // seconds on a steady clock; limits the rate of redraws
};

class Progress {
 public:
  static constexpr double kRedrawSeconds = 0.1;  // at most 10 times a second
  static constexpr double kLineSeconds =
      10;  // if not live, a line is printed after this many seconds of the run's own time
  // If not live, a line is also printed after this share of the steps.
  static constexpr double kLineShare = 0.1;

  Progress(std::string title, ProgressSink sink);

  void plan(int64_t steps_total, int64_t steps_per_epoch, int64_t batch_size);
  /// Starts an attempt at `step`: 0, or the step of the checkpoint from which it resumes.
  void begin(double time_s, int64_t step);
  void metric(const std::string& key, int64_t step, double value);
  /// Sets when the server expects the run to end; without it the rate of the last steps is used,
  /// which knows nothing of evaluations and of other jobs on the device.
  void expect_end(double time_s);
  /// Called after a batch of metrics; draws if it is time to. `time_s` is on the run's own clock
  /// (the event's time), so a replay shows the original rates.
  void update(double time_s);
  /// Prints a separate line above the bar; in a pipe, `time_s` precedes it.
  void note(double time_s, Style style, std::string_view text);
  /// Reports that the run has ended, perhaps early, with the result's metrics: with keep_best these
  /// are not the newest.
  void succeed(const std::map<std::string, double>& metrics);
  /// Removes the bar, so that further output starts at the left edge of the terminal.
  void finish();

  const ProgressState& state() const { return state_; }

 private:
  void draw();
  void measure(double time_s);

  ProgressState state_;
  ProgressSink sink_;
  int64_t batch_size_ = 0;
  std::deque<std::pair<double, int64_t>> pace_;  // (time, step) in the last kPaceSeconds
  double expected_end_s_ = 0;                    // 0: not known
  double drawn_at_ = -1e9;
  bool drawn_ = false;
  double line_time_ = -1e9;
  double line_share_ = 0;
};

/// Returns a Unix time as local time of day: "09:51:57".
std::string clock_time(double time_s);

}  // namespace trainyard::cli
