// kernels/math/dropout.h: which elements dropout keeps.
#pragma once

#include <cstdint>

#include "kernels/math/philox.h"

namespace trainyard::math {

/// Of 2^24 equally likely draws, those below the threshold are dropped.
TRAINYARD_HD inline uint32_t dropout_threshold(double ratio) {
  return static_cast<uint32_t>(ratio * 16777216.0);
}
/// `random` is the 32-bit Philox number of the element.
TRAINYARD_HD inline bool dropout_keeps(uint32_t random, uint32_t threshold) {
  return (random >> 8) >= threshold;
}

}  // namespace trainyard::math
