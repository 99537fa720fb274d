// server/worker/pace.h: measures how long a run has shown no progress, and how often it usually
// does.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace trainyard {

/// sign() is called about once per step; one other thread calls read().
class Pace {
 public:
  /// From this call on progress is expected, the first sign after about `first_ms`.
  void begin(int64_t first_ms);
  /// From this call on no progress is expected.
  void end();
  /// Records a sign of progress. `now_us` is the time of a steady clock.
  void sign(int64_t now_us);

  struct Reading {
    int64_t idle_ms = 0;   // since the last sign; 0 unless progress is expected
    int64_t usual_ms = 0;  // the median time between the last signs, or begin()'s `first_ms`
  };
  /// One thread calls this about every `interval_ms`. Adds at most 2 * `interval_ms` to the
  /// idle time per call, so that a process that was suspended and resumed does not look idle.
  Reading read(int64_t now_us, int64_t interval_ms);

 private:
  std::atomic<bool> expected_{false};
  std::atomic<int64_t> first_ms_{0};
  std::atomic<int64_t> signs_{0};
  std::array<std::atomic<int64_t>, 32> between_us_{};  // ring buffer of the newest intervals
  std::atomic<int64_t> last_sign_us_{0};

  // Used only by the thread that calls read().
  int64_t seen_signs_ = -1;
  int64_t read_us_ = 0;
  int64_t idle_us_ = 0;
};

}  // namespace trainyard
