// src/base/half.h: converts 16-bit floating-point numbers to F32, exactly, and back if that is
// exact.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <optional>

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

/// Returns the BF16 number that is `value` to the bit; nothing if there is none.
inline std::optional<uint16_t> exact_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0xffffu) != 0) return std::nullopt;
  return static_cast<uint16_t>(bits >> 16);
}

/// Returns the binary16 number that is `value` to the bit; nothing if there is none.
inline std::optional<uint16_t> exact_f16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
  const int exponent = static_cast<int>(bits >> 23 & 0xff) - 127;
  const uint32_t fraction = bits & 0x7fffffu;
  if (exponent == -127 && fraction == 0) return sign;
  if (exponent == 128) {  // infinities, and those that are no number
    if ((fraction & 0x1fffu) != 0) return std::nullopt;
    return static_cast<uint16_t>(sign | 0x7c00u | fraction >> 13);
  }
  if (exponent < -24 || exponent > 15) return std::nullopt;
  // The number is `digits` x 2^(exponent - 23). Subnormal numbers keep fewer digits.
  const uint32_t digits = fraction | 0x800000u;
  const int dropped = exponent < -14 ? -1 - exponent : 13;
  if ((digits & ((1u << dropped) - 1)) != 0) return std::nullopt;
  const uint32_t kept = digits >> dropped;
  if (exponent < -14) return static_cast<uint16_t>(sign | kept);
  return static_cast<uint16_t>(sign | static_cast<uint32_t>(exponent + 15) << 10 | (kept & 0x3ffu));
}

}  // namespace trainyard
