// src/base/philox.h: counter-based random numbers, Philox4x32-10.
//
// Every random number of a job is a pure function of (seed, purpose, step, index): never of call
// order, threads or devices. The scalar formula is in kernels/math/philox.h, shared with the GPU;
// this header names the purposes and draws on the host. Source: Salmon, Moraes, Dror, Shaw,
// "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "kernels/math/philox.h"

namespace trainyard {

/// FNV-1a of a name, 32 bit: the `stream` of a draw, so that a parameter's values depend on its
/// name.
constexpr uint32_t stream_of(std::string_view name) {
  uint32_t h = 2166136261u;
  for (const char c : name) h = (h ^ static_cast<unsigned char>(c)) * 16777619u;
  return h;
}

/// A permutation of [0, n): sorted by the 64-bit Philox key of each index, ties by index. The key
/// of index i is made of the 32-bit numbers at 2i (high half) and 2i + 1 of the stream.
std::vector<int64_t> permutation(int64_t n, uint64_t seed, uint32_t stream, uint64_t step);

}  // namespace trainyard
