// src/job/run_clock.h: what the steps of a run have taken.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>

namespace trainyard {

struct RunTimes {
  int64_t steps = 0;  // measured: all but the first that were submitted
  // Of the newest, at most RunClock::kNewest, in seconds: median and quartiles.
  double step_seconds = 0, step_seconds_low = 0, step_seconds_high = 0;
  // Sums in seconds. Of checkpoints, as far as they held the steps up.
  double steps_seconds = 0;
  int64_t evaluations = 0;
  double evaluations_seconds = 0;
  int64_t checkpoints = 0;
  double checkpoints_seconds = 0;
  double data_wait_seconds = 0;  // of steps_seconds: waiting for the loader
};

/// Not thread-safe.
class RunClock {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr size_t kNewest = 64;

  /// The time until the next call of steps_done() is a step's.
  void begin() { since_ = Clock::now(); }
  /// So many steps have ended since the last call of it, begin() or a pause's end.
  void steps_done(int64_t count);
  /// Something else than steps has run since then.
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
  int64_t taken_ = 0;  // entries ever written to newest_
};

}  // namespace trainyard
