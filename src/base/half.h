// src/base/half.h: converts 16-bit floating-point numbers to F32, exactly.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace trainyard {

inline float from_bf16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

/// Converts from IEEE 754 binary16: a sign, 5 bits of exponent with bias 15, and 10 bits of
/// fraction.
inline float from_f16(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
  const int exponent = bits >> 10 & 0x1f;
  const uint32_t fraction = bits & 0x3ffu;
  if (exponent == 0) {  // zero and subnormal numbers, which are normal in F32
    const float size = std::ldexp(static_cast<float>(fraction), -24);
    return sign != 0 ? -size : size;
  }
  const uint32_t wide = exponent == 0x1f ? 0xffu : static_cast<uint32_t>(exponent) + 127 - 15;
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

}  // namespace trainyard
