// kernels/math/dropout.h: the decision whether dropout keeps an element.
#pragma once

#include <cstdint>

#include "kernels/math/philox.h"

namespace trainyard::math {

/// Returns the threshold on a 24-bit random number: elements whose number is below it are dropped.
TRAINYARD_HD inline uint32_t dropout_threshold(double ratio) {
  return static_cast<uint32_t>(ratio * 16777216.0);
}
/// Returns whether the element is kept. `random` is its 32-bit Philox number.
TRAINYARD_HD inline bool dropout_keeps(uint32_t random, uint32_t threshold) {
  return (random >> 8) >= threshold;
}

}  // namespace trainyard::math
