// src/plan/short_step.h: which steps are so short on a GPU that their launches and waits dominate.
#pragma once

#include <cstdint>

namespace trainyard {

/// Steps up to this length are submitted together (step_slots.h) and run in two lanes (lanes.h).
/// For longer steps, the 15 us around a step's kernels are negligible, sixteen of them would delay
/// a stop, and one kernel fills the GPU.
inline constexpr double kShortStepSeconds = 500e-6;

/// Returns a rough estimate for a fast GPU: 50 TFLOP/s, 2 TB/s, and 2 us for each node.
constexpr double estimated_gpu_seconds(int64_t flops, int64_t bytes, int64_t nodes) {
  return static_cast<double>(flops) / 50e12 + static_cast<double>(bytes) / 2e12 +
         static_cast<double>(nodes) * 2e-6;
}

}  // namespace trainyard
