// src/job/checkpoint_pace.h: when a run writes a checkpoint whose recipe does not say at which
// steps: as often as that costs less than 1 % of its time.
#pragma once

#include <cstdint>

namespace trainyard {

/// A job of tiny steps would write hundreds a second, and wait for the disk in most of its time.
inline constexpr int64_t kCheckpointIntervalMinUs = 5'000'000;

/// Most time between two checkpoints of a state of so many bytes, in us: 100 times what one costs
/// on a slow machine, at least kCheckpointIntervalMinUs and at most 10 minutes. This much work is
/// lost in a kill at most, apart from that beside the newest write.
int64_t checkpoint_interval_max_us(int64_t bytes);

/// Times are those of Clock::steady_us().
class CheckpointPace {
 public:
  CheckpointPace(int64_t bytes, int64_t now_us);

  /// `writing`: one is under way, and the next would wait for it. It does so only when the most
  /// time has passed, so that a disk that hangs is a run that stands still.
  bool due(int64_t now_us, bool writing) const;
  /// A checkpoint of this moment is being written, due or not.
  void begin(int64_t now_us) { begin_us_ = now_us; }
  /// What one cost: the time of the training thread, and what the writing thread computed.
  void add_cost(int64_t us);

 private:
  int64_t interval_max_us_;
  int64_t interval_us_;  // the most, until one was measured
  int64_t begin_us_;
  int64_t cost_us_ = 0;
};

}  // namespace trainyard
