// kernels/cpu/stored.h: reads and writes numbers that are stored in 16 bits or as floats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/simd/elementwise.h"
#include "kernels/gemm.h"

namespace trainyard::kernels::cpu {

/// Returns the address of element `at`.
inline const void* element_of(Stored stored, const void* x, int64_t at) {
  return static_cast<const std::byte*>(x) + at * size_of(stored);
}
inline void* element_of(Stored stored, void* x, int64_t at) {
  return static_cast<std::byte*>(x) + at * size_of(stored);
}

inline void widen_from(Stored stored, int64_t count, const void* x, float* y) {
  if (stored == Stored::kBf16) {
    elementwise_loops().bf16.widen(count, static_cast<const math::Bf16*>(x), y);
  } else if (stored == Stored::kF16) {
    elementwise_loops().f16.widen(count, static_cast<const math::F16*>(x), y);
  } else {
    std::memcpy(y, x, static_cast<size_t>(count) * sizeof(float));
  }
}
inline void narrow_to(Stored stored, int64_t count, const float* x, void* y) {
  if (stored == Stored::kBf16) {
    elementwise_loops().bf16.narrow(count, x, static_cast<math::Bf16*>(y));
  } else if (stored == Stored::kF16) {
    elementwise_loops().f16.narrow(count, x, static_cast<math::F16*>(y));
  } else {
    std::memcpy(y, x, static_cast<size_t>(count) * sizeof(float));
  }
}

}  // namespace trainyard::kernels::cpu
