#include "src/job/run_clock.h"

#include <algorithm>
#include <utility>

namespace trainyard {

double RunClock::lap() {
  const Clock::time_point now = Clock::now();
  return std::chrono::duration<double>(now - std::exchange(since_, now)).count();
}

void RunClock::steps_done(int64_t count) {
  if (count <= 0) return;
  const double seconds = lap();
  // The first steps are slower: they touch all memory for the first time, and on a GPU they are
  // recorded as a graph.
  if (std::exchange(is_first_, false)) return;
  times_.steps += count;
  times_.steps_seconds += seconds;
  newest_[static_cast<size_t>(taken_++) % kNewest] = seconds / static_cast<double>(count);
}

void RunClock::evaluation_done() {
  ++times_.evaluations;
  times_.evaluations_seconds += lap();
}

void RunClock::checkpoint_done() {
  ++times_.checkpoints;
  times_.checkpoints_seconds += lap();
}

RunTimes RunClock::times() const {
  RunTimes times = times_;
  if (taken_ == 0) return times;
  std::array<double, kNewest> sorted = newest_;
  const auto count = std::min<int64_t>(taken_, kNewest);
  std::sort(sorted.begin(), sorted.begin() + count);
  const auto at = [&](int64_t quarters) {
    return sorted[static_cast<size_t>((count - 1) * quarters / 4)];
  };
  times.step_seconds = at(2);
  times.step_seconds_low = at(1);
  times.step_seconds_high = at(3);
  return times;
}

}  // namespace trainyard
