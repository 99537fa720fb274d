// src/base/clock.h: time arrives by constructor, so that a test can hold it still or make it jump.
#pragma once

#include <chrono>
#include <cstdint>

namespace trainyard {

class Clock {
 public:
  virtual ~Clock() = default;
  /// Microseconds since 1970 in UTC, for people. May jump; never measure a duration with it.
  virtual int64_t wall_us() const = 0;
  /// Microseconds that never go back, for durations, leases and timeouts. Means nothing elsewhere.
  virtual int64_t steady_us() const = 0;
};

class SystemClock final : public Clock {
 public:
  int64_t wall_us() const override { return us<std::chrono::system_clock>(); }
  int64_t steady_us() const override { return us<std::chrono::steady_clock>(); }

 private:
  template <typename C>
  static int64_t us() {
    return std::chrono::duration_cast<std::chrono::microseconds>(C::now().time_since_epoch())
        .count();
  }
};

/// This machine's clocks. Thread-safe.
inline const Clock& system_clock() {
  static const SystemClock clock;
  return clock;
}

}  // namespace trainyard
