// kernels/alignment.h: the alignment that kernels may expect of their operands and workspaces, and
// the rounding function that preserves it.
#pragma once

#include <cstdint>

namespace trainyard {

/// Alignment on the host, in bytes, of every tensor, every workspace and every piece of a
/// workspace: a cache line or a 512-bit vector.
inline constexpr int64_t kHostAlignment = 64;
/// Alignment on a GPU, in bytes: that of cudaMalloc. cuBLASLt rejects a less aligned workspace;
/// cuDNN's engines accept one, but their results may then be wrong.
inline constexpr int64_t kCudaAlignment = 256;

/// Returns the smallest multiple of `multiple` that is at least `value`.
constexpr int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace trainyard
