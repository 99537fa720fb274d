// tests/support/patience.h: how long a test waits for an event.
//
// A wait ends with its event. Only a failing test reaches the limit, so the limit is far above the
// time that a busy machine needs. TRAINYARD_TEST_PATIENCE multiplies it (scripts/check slow, and
// tests/e2e/harness.py for Python).
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>

namespace trainyard {

inline int patience_factor() {
  static const int factor = [] {
    const char* const text = std::getenv("TRAINYARD_TEST_PATIENCE");
    return text == nullptr ? 1 : std::max(1, std::atoi(text));
  }();
  return factor;
}

inline std::chrono::seconds patience() { return std::chrono::seconds(120) * patience_factor(); }

/// Returns the limit for something promised within `time`, on a machine that may be four times
/// slower.
inline std::chrono::milliseconds promised(std::chrono::milliseconds time) {
  return 4 * time * patience_factor();
}

/// Polls until the condition is true. Returns false after patience().
template <typename Condition>
[[nodiscard]] bool eventually(const Condition& condition) {
  const auto deadline = std::chrono::steady_clock::now() + patience();
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

}  // namespace trainyard
