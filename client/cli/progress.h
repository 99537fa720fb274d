// client/cli/progress.h: a run's progress, as a bar that redraws itself or as lines for a pipe.
//
// The state and its rendering know nothing about jobs, gRPC or clocks, so that `watch`, `submit
// --watch` and `local run` share them and tests can read them as text.
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
  std::map<std::string, double> metrics;  // newest value by key; at the end the result's
  bool succeeded = false;

  double share() const;
};

/// One line of at most `width` columns. The least important parts are left out first if the
/// terminal is narrow.
std::string render_bar(const ProgressState& state, int width, bool utf8, bool colour);
/// The same facts for a log: "step 120/240  50 %  epoch 5/10  ..."
std::string render_line(const ProgressState& state);

struct ProgressSink {
  bool live = false;  // a terminal: one bar, redrawn in place
  bool utf8 = false;
  bool colour = false;
  std::function<int()> width;  // asked at each redraw
  std::function<void(std::string_view)> write;
  std::function<double()> now;  // seconds, steady; for the pace of redraws
};

class Progress {
 public:
  static constexpr double kRedrawSeconds = 0.1;  // at most 10 times a second
  static constexpr double kLineSeconds =
      10;  // plain: a line after each such interval of the run's own time ...
  static constexpr double kLineShare = 0.1;  // ... or share of the way

  Progress(std::string title, ProgressSink sink);

  void plan(int64_t steps_total, int64_t steps_per_epoch, int64_t batch_size);
  /// Where an attempt begins: 0, or the step of the checkpoint that it resumes from.
  void begin(double time_s, int64_t step);
  void metric(const std::string& key, int64_t step, double value);
  /// After a batch of metrics: draws, if it is time. `time_s` is the run's own clock (the event's
  /// time): a replay shows the original rates.
  void update(double time_s);
  /// A line of its own, above the bar. `time` goes before it in a pipe.
  void note(double time_s, Style style, std::string_view text);
  /// The run has reached its end, perhaps early, and these are its result's metrics: with
  /// keep_best they are not the newest ones.
  void succeed(const std::map<std::string, double>& metrics);
  /// Removes the bar; what follows on the terminal begins at the left.
  void finish();

  const ProgressState& state() const { return state_; }

 private:
  void draw();
  void measure(double time_s);

  ProgressState state_;
  ProgressSink sink_;
  int64_t batch_size_ = 0;
  std::deque<std::pair<double, int64_t>> pace_;  // (time, step) of the last seconds
  double drawn_at_ = -1e9;
  bool drawn_ = false;
  double line_time_ = -1e9;
  double line_share_ = 0;
};

/// "09:51:57" of a Unix time, local.
std::string clock_time(double time_s);

}  // namespace trainyard::cli
