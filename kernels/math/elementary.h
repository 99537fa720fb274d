// kernels/math/elementary.h: exp, log, tanh and erf that a compiler can vectorize.
//
// In float on the host, they are polynomials without branches and calls, so that a loop around them
// becomes vector instructions of any width. The steps are the same at every width, so results of
// different instruction sets differ only by fused multiply-adds. In double, and on devices, they
// are the C library's functions. Errors, measured over floats of all magnitudes
// (tests/kernels/math_transcendental_test.cc):
//
//   exp    1.5 ulp, gradual underflow and overflow as in IEEE 754
//   expm1  2 ulp, for x up to 88        log   2 ulp          log1p  2 ulp, for x in [0, 1]
//   tanh   3 ulp                        erf   2.5 ulp
//
// All of them propagate NaN. The polynomials were fitted for the smallest relative error on the
// interval given with each.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/math/host_device.h"

namespace trainyard::math {

#if !defined(__CUDA_ARCH__)
#define TRAINYARD_VECTOR_INLINE [[gnu::always_inline]] inline
namespace vectorized {

constexpr float kLog2e = 1.44269504088896341f;
// ln 2 is split in two parts: the first has 12 bits, so that its products with small integers are
// exact.
constexpr float kLn2High = 0.693359375f;
constexpr float kLn2Low = -2.12194440e-4f;
// Adding this to a float below 2^22 rounds it to an integer, which is then in the lowest bits.
constexpr float kRound = 12582912.0f;  // 1.5 * 2^23

/// The decomposition x = k ln 2 + r with |r| <= ln 2 / 2.
struct Reduced {
  uint32_t k;  // in two's complement
  float r;
};
TRAINYARD_VECTOR_INLINE Reduced reduce(float x) {
  const float shifted = x * kLog2e + kRound;
  const float whole = shifted - kRound;
  return {std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(kRound),
          (x - whole * kLn2High) - whole * kLn2Low};
}

/// Returns e^r - 1 for |r| <= ln 2 / 2.
TRAINYARD_VECTOR_INLINE float exp_minus_one(float r) {
  float q = 0.0013950488f;
  q = q * r + 0.008368888f;
  q = q * r + 0.041666206f;
  q = q * r + 0.16666518f;
  q = q * r + 0.5f;
  return r + r * r * q;
}

/// Returns 2^k for k in [-126, 127].
TRAINYARD_VECTOR_INLINE float power_of_two(uint32_t k) {
  return std::bit_cast<float>((k + 127u) << 23);
}

TRAINYARD_VECTOR_INLINE float exp(float x) {
  x = x > 89.0f ? 89.0f : x;      // the result overflows to infinity
  x = x < -105.0f ? -105.0f : x;  // the result underflows to 0
  const auto [k, r] = reduce(x);
  // Scale in two steps, since 2^k itself may be infinite or subnormal where the result is not.
  const auto half = static_cast<uint32_t>(static_cast<int32_t>(k) >> 1);
  return (exp_minus_one(r) + 1.0f) * power_of_two(half) * power_of_two(k - half);
}

TRAINYARD_VECTOR_INLINE float expm1(float x) {
  x = x < -20.0f ? -20.0f : x;  // the result is -1 to the last bit
  const auto [k, r] = reduce(x);
  const float scale = power_of_two(k);
  return scale * exp_minus_one(r) + (scale - 1.0f);
}

/// Returns log((2 + f) / (2 - f)) = 2 atanh(f / 2), computed from s = f / 2 in [0, 1/3] by the
/// series 2 s (1 + s^2/3 + s^4/5 + ...).
TRAINYARD_VECTOR_INLINE float two_atanh(float s) {
  const float z = s * s;
  float p = 1.0f / 17;
  p = p * z + 1.0f / 15;
  p = p * z + 1.0f / 13;
  p = p * z + 1.0f / 11;
  p = p * z + 1.0f / 9;
  p = p * z + 1.0f / 7;
  p = p * z + 1.0f / 5;
  p = p * z + 1.0f / 3;
  return 2.0f * s + 2.0f * s * z * p;
}

TRAINYARD_VECTOR_INLINE float log1p(float x) { return two_atanh(x / (2.0f + x)); }

TRAINYARD_VECTOR_INLINE float log(float x) {
  const bool subnormal = x < 1.17549435e-38f;
  const float scaled = subnormal ? x * 8388608.0f : x;  // 2^23
  // x = 2^k (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)]
  const uint32_t bits = std::bit_cast<uint32_t>(scaled) - 0x3F3504F3u;
  const auto k = static_cast<int32_t>(bits) >> 23;
  const float f = std::bit_cast<float>((bits & 0x007FFFFFu) + 0x3F3504F3u) - 1.0f;
  const float whole = static_cast<float>(k - (subnormal ? 23 : 0));
  const float value = whole * kLn2High + (two_atanh(f / (2.0f + f)) + whole * kLn2Low);
  const float infinity = std::bit_cast<float>(0x7F800000u);
  const float finite = x < infinity ? value : x;  // infinity and NaN are returned unchanged
  return x > 0.0f ? finite : (x == 0.0f ? -infinity : std::bit_cast<float>(0x7FC00000u));
}

TRAINYARD_VECTOR_INLINE float tanh(float x) {
  float a = x < 0.0f ? -x : x;
  a = a > 10.0f ? 10.0f : a;  // the result is 1 to the last bit
  const float e = expm1(2.0f * a);
  const float t = e / (e + 2.0f);
  return x < 0.0f ? -t : t;
}

TRAINYARD_VECTOR_INLINE float erf(float x) {
  float a = x < 0.0f ? -x : x;
  const float z = a * a;
  float near = -0.00062224228f;  // erf(x) / x as a polynomial in x^2, |x| <= 0.875
  near = near * z + 0.005035872f;
  near = near * z + -0.026793955f;
  near = near * z + 0.112825245f;
  near = near * z + -0.37612557f;
  near = near * z + 1.1283791f;
  a = a > 4.0f ? 4.0f : a;     // erf is 1 to the last bit
  float far = -0.0001999013f;  // -log(erfc(x)), for 0.875 <= x <= 4
  far = far * a + 0.0030819953f;
  far = far * a + -0.022381028f;
  far = far * a + 0.10425019f;
  far = far * a + 0.6368207f;
  far = far * a + 1.1278894f;
  far = far * a + 0.0001442118f;
  const float tail = 1.0f - exp(-far);
  return a <= 0.875f ? x * near : (x < 0.0f ? -tail : tail);
}

}  // namespace vectorized
#define TRAINYARD_ELEMENTARY(name)          \
  template <typename T>                     \
  TRAINYARD_HD inline T name(T x) {         \
    if constexpr (std::is_same_v<T, float>) \
      return vectorized::name(x);           \
    else                                    \
      return std::name(x);                  \
  }
#else
#define TRAINYARD_ELEMENTARY(name)  \
  template <typename T>             \
  TRAINYARD_HD inline T name(T x) { \
    return std::name(x);            \
  }
#endif

TRAINYARD_ELEMENTARY(exp)
TRAINYARD_ELEMENTARY(expm1)
TRAINYARD_ELEMENTARY(log)
TRAINYARD_ELEMENTARY(log1p)
TRAINYARD_ELEMENTARY(tanh)
TRAINYARD_ELEMENTARY(erf)
#undef TRAINYARD_ELEMENTARY

}  // namespace trainyard::math
