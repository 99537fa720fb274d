// kernels/alignment.h: what kernels may expect of the memory that they are given, and the rounding
// that keeps it so.
#pragma once

#include <cstdint>

namespace trainyard {

/// What the address of every tensor, of a workspace and of each piece of one is a multiple of, in
/// bytes. On the host: a cache line, a 512-bit vector.
inline constexpr int64_t kHostAlignment = 64;
/// On a GPU: what cudaMalloc gives. cuBLASLt refuses a workspace that is less aligned; engines of
/// cuDNN do not refuse it, and may compute something else.
inline constexpr int64_t kCudaAlignment = 256;

/// The least multiple of `multiple` that is not below `value`.
constexpr int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace trainyard
