// src/base/clock.h: the clock interface that classes receive in their constructors, so that a test
// can stop the time or make it jump.
#pragma once

#include <chrono>
#include <cstdint>

namespace trainyard {

class Clock {
 public:
  virtual ~Clock() = default;
  /// Microseconds since 1970 in UTC, for timestamps. It may jump: never measure a duration with it.
  virtual int64_t wall_us() const = 0;
  /// Returns microseconds that never decrease, for durations, leases and timeouts. Values of
  /// different machines cannot be compared.
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

/// Returns this machine's clocks. Thread-safe.
inline const Clock& system_clock() {
  static const SystemClock clock;
  return clock;
}

}  // namespace trainyard
