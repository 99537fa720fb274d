// src/job/run_clock.h: measures the time of a run's steps, evaluations and checkpoints.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>

namespace trainyard {

struct RunTimes {
  int64_t steps = 0;  // measured steps: all but those of the first call of steps_done()
  // Median and quartiles of a step's time in the last RunClock::kNewest measurements.
  double step_seconds = 0, step_seconds_low = 0, step_seconds_high = 0;
  // Sums. `checkpoints_seconds` contains only the time for which steps had to wait.
  double steps_seconds = 0;
  int64_t evaluations = 0;
  double evaluations_seconds = 0;
  int64_t checkpoints = 0;
  double checkpoints_seconds = 0;
  double data_wait_seconds = 0;  // the part of steps_seconds spent waiting for the loader
};

/// Not thread-safe.
class RunClock {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr size_t kNewest = 64;

  // Each call below attributes the time since the previous call of any of them.

  /// Begins the measurement; the time before the call belongs to nothing.
  void begin() { since_ = Clock::now(); }
  /// Attributes the time to the `count` steps that ended since the previous call. The time of the
  /// first call is not counted.
  void steps_done(int64_t count);
  /// These attribute the time to an evaluation or a checkpoint.
  void evaluation_done();
  void checkpoint_done();
  void set_data_wait(double seconds) { times_.data_wait_seconds = seconds; }

  RunTimes times() const;

 private:
  double lap();

  Clock::time_point since_ = Clock::now();
  bool is_first_ = true;
  RunTimes times_;
  std::array<double, kNewest> newest_{};
  int64_t taken_ = 0;  // the number of entries written to newest_ so far; it is a ring buffer
};

}  // namespace trainyard
