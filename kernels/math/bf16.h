// kernels/math/bf16.h: bfloat16, the upper half of a float: 1 sign bit, 8 bits of exponent, 7 of
// fraction. It is how numbers are stored; arithmetic is done in float.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/math/host_device.h"

namespace trainyard::math {

struct Bf16 {
  uint16_t bits;
  bool operator==(const Bf16&) const = default;
};

/// Exact.
TRAINYARD_HD inline float widen(Bf16 x) {
  return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16);
}

/// To the nearest, ties to even, as IEEE 754 rounds: beyond the largest it is infinity, subnormals
/// are kept. A NaN stays one (quiet, its sign and upper payload kept), also where its lower half
/// alone made it one.
TRAINYARD_HD inline Bf16 narrow(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  const bool is_nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
  return {static_cast<uint16_t>(is_nan ? (bits >> 16) | 0x40u : rounded)};
}

}  // namespace trainyard::math
