// tests/server/fake_clock.h: a clock that advances only when a test advances it.
#pragma once

#include <atomic>
#include <cstdint>

#include "src/base/clock.h"

namespace trainyard::server {

class FakeClock final : public Clock {
 public:
  int64_t wall_us() const override { return wall_us_; }
  int64_t steady_us() const override { return steady_us_; }
  void set_wall(int64_t us) { wall_us_ = us; }
  void pass(int64_t us) {
    wall_us_ += us;
    steady_us_ += us;
  }

 private:
  std::atomic<int64_t> wall_us_ = 1'700'000'000'000'000;
  std::atomic<int64_t> steady_us_ = 1'000'000;
};

}  // namespace trainyard::server
