// src/base/philox.h: counter-based random numbers, Philox4x32-10.
//
// Every random number of a job is a pure function of (seed, stream, step, index); it depends on no
// call order, thread or device. The scalar formula is in kernels/math/philox.h, shared with the
// GPU; this header names streams and draws permutations. Source: Salmon, Moraes, Dror, Shaw,
// "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "kernels/math/philox.h"

namespace trainyard {

/// Returns the `stream` of the draws for a name, so that for example a parameter's initial values
/// depend on its name. It is the name's 32-bit FNV-1a hash.
constexpr uint32_t stream_of(std::string_view name) {
  uint32_t h = 2166136261u;
  for (const char c : name) h = (h ^ static_cast<unsigned char>(c)) * 16777619u;
  return h;
}

/// Returns a permutation of [0, n): the indices sorted by their 64-bit Philox keys, ties by index.
/// The key of index i consists of the stream's 32-bit numbers 2i (high half) and 2i + 1.
std::vector<int64_t> permutation(int64_t n, uint64_t seed, uint32_t stream, uint64_t step);

}  // namespace trainyard
