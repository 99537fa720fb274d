// src/job/checkpoint_pace.h: decides when a run writes a checkpoint if its recipe does not name the
// steps: as often as possible while checkpoints cost less than 1 % of the run's time.
#pragma once

#include <cstdint>

namespace trainyard {

/// The least time between checkpoints, in microseconds. Without it a job of tiny steps would write
/// hundreds of checkpoints a second and mostly wait for the disk.
inline constexpr int64_t kCheckpointIntervalMinUs = 5'000'000;

/// Returns the longest time between two checkpoints of `bytes` bytes, in microseconds: 100 times
/// the cost of a checkpoint on a slow machine, at least kCheckpointIntervalMinUs and at most 10
/// minutes. A kill loses no more work than that, apart from the work during the newest write.
int64_t checkpoint_interval_max_us(int64_t bytes);

/// Times are in microseconds of Clock::steady_us().
class CheckpointPace {
 public:
  CheckpointPace(int64_t bytes, int64_t now_us);

  /// Returns whether the run must write a checkpoint. `writing`: an earlier one is still being
  /// written, so that the run would have to wait for it. Then only the longest interval makes the
  /// next one due: a run whose disk hangs stops instead of training on without checkpoints.
  bool due(int64_t now_us, bool writing) const;
  /// Records that the write of a checkpoint began at `now_us`, whether it was due or not.
  void begin(int64_t now_us) { begin_us_ = now_us; }
  /// Records the cost of a checkpoint: the time that the training thread spent on it plus the CPU
  /// time of the writing thread.
  void add_cost(int64_t us);

 private:
  int64_t interval_max_us_;
  int64_t interval_us_;  // interval_max_us_ until the first cost is measured
  int64_t begin_us_;
  int64_t cost_us_ = 0;
};

}  // namespace trainyard
