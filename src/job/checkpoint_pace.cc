#include "src/job/checkpoint_pace.h"

#include <algorithm>

namespace trainyard {

namespace {

constexpr int64_t kIntervalMaxUs = 600'000'000;
constexpr int64_t kTimesTheCost = 100;
// The cost of a checkpoint on a slow machine, since plans must be true there too: the fixed cost,
// and the bytes that are copied, hashed and written per microsecond.
constexpr int64_t kSlowUs = 40'000;
constexpr int64_t kSlowBytesPerUs = 100;

}  // namespace

int64_t checkpoint_interval_max_us(int64_t bytes) {
  const int64_t slow_us = kSlowUs + std::min(bytes / kSlowBytesPerUs, kIntervalMaxUs);
  return std::clamp(kTimesTheCost * slow_us, kCheckpointIntervalMinUs, kIntervalMaxUs);
}

CheckpointPace::CheckpointPace(int64_t bytes, int64_t now_us)
    : interval_max_us_(checkpoint_interval_max_us(bytes)),
      interval_us_(interval_max_us_),
      begin_us_(now_us) {}

bool CheckpointPace::due(int64_t now_us, bool writing) const {
  return now_us - begin_us_ >= (writing ? interval_max_us_ : interval_us_);
}

void CheckpointPace::add_cost(int64_t us) {
  // A slower checkpoint replaces the estimate; a faster one only halves the difference, since the
  // machine may be idle at the moment.
  cost_us_ = std::max(us, (cost_us_ + us) / 2);
  interval_us_ = std::clamp(kTimesTheCost * cost_us_, kCheckpointIntervalMinUs, interval_max_us_);
}

}  // namespace trainyard
