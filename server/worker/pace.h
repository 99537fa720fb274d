// server/worker/pace.h: how long a run has shown no progress, and how long it usually takes.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace trainyard {

/// Signs come as often as there are steps; one other thread reads.
class Pace {
 public:
  /// From here on progress is expected: the first sign in about `first_ms`.
  void begin(int64_t first_ms);
  /// Nothing is expected any more.
  void end();
  /// `now_us`: of a steady clock.
  void sign(int64_t now_us);

  struct Reading {
    int64_t idle_ms = 0;   // since the last sign; 0 unless progress is expected
    int64_t usual_ms = 0;  // the median time between the last signs, or begin()'s guess
  };
  /// Called about every `interval_ms`, by one thread. Counts at most twice that from one call to
  /// the next, so that a process that was stopped and goes on does not look idle.
  Reading read(int64_t now_us, int64_t interval_ms);

 private:
  std::atomic<bool> expected_{false};
  std::atomic<int64_t> first_ms_{0};
  std::atomic<int64_t> signs_{0};
  std::array<std::atomic<int64_t>, 32> between_us_{};  // of the newest signs, as a ring
  std::atomic<int64_t> last_sign_us_{0};

  // The reading thread's own.
  int64_t seen_signs_ = -1;
  int64_t read_us_ = 0;
  int64_t idle_us_ = 0;
};

}  // namespace trainyard
