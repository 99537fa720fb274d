#include "server/worker/pace.h"

#include <algorithm>
#include <vector>

namespace trainyard {

void Pace::begin(int64_t first_ms) {
  first_ms_.store(first_ms, std::memory_order_relaxed);
  expected_.store(true, std::memory_order_relaxed);
}

void Pace::end() { expected_.store(false, std::memory_order_relaxed); }

void Pace::sign(int64_t now_us) {
  const int64_t signs = signs_.load(std::memory_order_relaxed);
  const int64_t last_us = last_sign_us_.exchange(now_us, std::memory_order_relaxed);
  if (signs > 0) {
    between_us_[static_cast<size_t>(signs - 1) % between_us_.size()].store(
        now_us - last_us, std::memory_order_relaxed);
  }
  signs_.store(signs + 1, std::memory_order_release);
}

Pace::Reading Pace::read(int64_t now_us, int64_t interval_ms) {
  const int64_t signs = signs_.load(std::memory_order_acquire);
  if (signs != seen_signs_ || !expected_.load(std::memory_order_relaxed)) {
    idle_us_ = 0;
  } else {
    idle_us_ += std::min(now_us - read_us_, 2 * interval_ms * 1000);
  }
  seen_signs_ = signs;
  read_us_ = now_us;
  const auto known =
      static_cast<size_t>(std::clamp<int64_t>(signs - 1, 0, std::ssize(between_us_)));
  if (known == 0) return {idle_us_ / 1000, first_ms_.load(std::memory_order_relaxed)};
  std::vector<int64_t> between(between_us_.begin(),
                               between_us_.begin() + static_cast<ptrdiff_t>(known));
  const auto middle = between.begin() + static_cast<ptrdiff_t>(known / 2);
  std::nth_element(between.begin(), middle, between.end());
  return {idle_us_ / 1000, *middle / 1000};
}

}  // namespace trainyard
