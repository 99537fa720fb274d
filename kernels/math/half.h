// kernels/math/half.h: 16-bit floating-point formats. They are only used for storage; arithmetic is
// done in float.
//
//   Bf16  bfloat16, the upper half of a float: 1 sign bit, 8 bits of exponent, 7 of fraction.
//   F16   IEEE 754 binary16: 1 sign bit, 5 bits of exponent, 10 of fraction. The largest is 65504,
//         the smallest normal 2^-14, the smallest subnormal 2^-24.
//
// widen() is exact. narrow() rounds to the nearest, ties to even, as in IEEE 754: values beyond the
// largest become infinity, subnormals are kept. A NaN stays a NaN, even if only its lower bits made
// it one: it becomes quiet and keeps its sign and the upper bits of its payload. (F16 on a GPU has
// a single NaN.)
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
  // Exponent and fraction are shifted into place, and 112 is added to the exponent to change its
  // bias from 15 to 127. If all bits of the exponent are set (infinity, NaN), 112 is added once
  // more. A subnormal is read as 2^-14 plus its value, from which a float subtraction removes
  // 2^-14. There is no branch, so that loops vectorize.
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
  // Rounds off 13 bits of the fraction; a carry may increment the exponent, up to infinity.
  const uint32_t normal = (size - (112u << 23) + 0xFFFu + ((size >> 13) & 1u)) >> 13;
  // Next to 0.5, floats are 2^-24 apart, as F16's subnormals are, so that the addition rounds.
  const uint32_t subnormal =
      std::bit_cast<uint32_t>(std::bit_cast<float>(size) + 0.5f) - (126u << 23);
  const uint32_t bits = size > 0x7F800000u     ? 0x7E00u | (size >> 13 & 0x3FFu)
                        : size >= (143u << 23) ? 0x7C00u  // 65536 and above
                        : size < (113u << 23)  ? subnormal
                                               : normal;
  return {static_cast<uint16_t>(sign | bits)};
#endif
}

}  // namespace trainyard::math
