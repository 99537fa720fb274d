// src/plan/placement.h: assigns offsets to buffers with known lifetimes.
#pragma once

#include <stop_token>
#include <vector>

#include "src/plan/liveness.h"

namespace trainyard {

struct PlacedBuffers {
  std::vector<int64_t> offsets;  // by index of the buffer
  int64_t size_bytes = 0;        // highest end of a buffer
};

/// Places the largest buffer first. Each goes into the smallest gap that fits between those placed
/// earlier that are in use at the same time. Source: Pisarchyk, Lee, "Efficient Memory Management
/// for Deep Neural Net Inference" (2020), greedy by size. The time is nearly linear if few gaps
/// remain, as in networks. Once `stop` is requested, the remaining buffers keep the offset 0.
PlacedBuffers place_buffers(const std::vector<Buffer>& buffers, const std::stop_token& stop = {});

}  // namespace trainyard
