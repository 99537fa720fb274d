// src/plan/placement.h: offsets for buffers with known lifetimes.
#pragma once

#include <stop_token>
#include <vector>

#include "src/plan/liveness.h"

namespace trainyard {

struct PlacedBuffers {
  std::vector<int64_t> offsets;  // by buffer
  int64_t size_bytes = 0;        // highest end
};

/// Largest buffer first, each into the smallest gap that fits between those placed before it and
/// in use at the same time. Source: Pisarchyk, Lee, "Efficient Memory Management for Deep Neural
/// Net Inference" (2020), greedy by size. Near linear where few gaps remain, as in networks; once
/// `stop` is requested, buffers that have no place yet stay at 0.
PlacedBuffers place_buffers(const std::vector<Buffer>& buffers, const std::stop_token& stop = {});

}  // namespace trainyard
