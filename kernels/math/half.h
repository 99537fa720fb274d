// kernels/math/half.h: numbers of 16 bits. They are how numbers are stored; arithmetic is done in
// float.
//
//   Bf16  bfloat16, the upper half of a float: 1 sign bit, 8 bits of exponent, 7 of fraction.
//   F16   IEEE 754 binary16: 1 sign bit, 5 bits of exponent, 10 of fraction. The largest is 65504,
//         the least normal 2^-14, the least subnormal 2^-24.
//
// widen() is exact. narrow() rounds to the nearest, ties to even, as IEEE 754 rounds: beyond the
// largest it is infinity, subnormals are kept. A NaN stays one (quiet, its sign and upper payload
// kept; on a GPU F16 has one NaN), also where its lower bits alone made it one.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/math/host_device.h"

namespace trainyard::math {

struct Bf16 {
  uint16_t bits;
  bool operator==(const Bf16&) const = default;
};
struct F16 {
  uint16_t bits;
  bool operator==(const F16&) const = default;
};

TRAINYARD_HD inline float widen(Bf16 x) {
  return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16);
}

TRAINYARD_HD inline float widen(F16 x) {
#ifdef __CUDA_ARCH__
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x.bits));
  return wide;
#else
  // Exponent and fraction move to their places, and the exponent's bias changes from 15 to 127. It
  // changes once more where all its bits are set. A subnormal is a sum of 2^-14 and itself, of
  // which float takes the former off again: no branch, so that loops of it are vectors.
  const uint32_t sign = (x.bits & 0x8000u) << 16;
  const uint32_t size = (x.bits & 0x7FFFu) << 13;
  const uint32_t moved = size + (112u << 23);
  const float subnormal = std::bit_cast<float>(moved + (1u << 23)) - 0x1p-14f;
  const uint32_t bits = size >= (31u << 23) ? moved + (112u << 23)
                        : size < (1u << 23) ? std::bit_cast<uint32_t>(subnormal)
                                            : moved;
  return std::bit_cast<float>(sign | bits);
#endif
}

template <typename Half>
TRAINYARD_HD Half narrow(float x);

template <>
TRAINYARD_HD inline Bf16 narrow<Bf16>(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  const bool is_nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
  return {static_cast<uint16_t>(is_nan ? (bits >> 16) | 0x40u : rounded)};
}

template <>
TRAINYARD_HD inline F16 narrow<F16>(float x) {
#ifdef __CUDA_ARCH__
  uint16_t narrowed;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(narrowed) : "f"(x));
  return {narrowed};
#else
  const uint32_t all = std::bit_cast<uint32_t>(x);
  const uint32_t sign = (all >> 16) & 0x8000u, size = all & 0x7FFFFFFFu;
  // Thirteen bits of the fraction go; a carry may go on into the exponent, and to infinity.
  const uint32_t normal = (size - (112u << 23) + 0xFFFu + ((size >> 13) & 1u)) >> 13;
  // Beside 0.5 float has the steps of a subnormal, 2^-24, and rounds to them itself.
  const uint32_t subnormal =
      std::bit_cast<uint32_t>(std::bit_cast<float>(size) + 0.5f) - (126u << 23);
  const uint32_t bits = size > 0x7F800000u     ? 0x7E00u | (size >> 13 & 0x3FFu)
                        : size >= (143u << 23) ? 0x7C00u  // 65536 and more
                        : size < (113u << 23)  ? subnormal
                                               : normal;
  return {static_cast<uint16_t>(sign | bits)};
#endif
}

}  // namespace trainyard::math
