// kernels/math/transcendental.h: exp, tanh and erf whose float versions have no branch and no call,
// so that a loop around them vectorizes; the C library's functions take ten times as long per
// element. In double, and in device code, they are the library's functions.
//
// Errors of the float versions, over all floats (tests/kernels/math_transcendental_test.cc): exp 2
// ulp, tanh 3 ulp, erf 2e-7 absolute. NaN is propagated; exp overflows to infinity and becomes 0
// below -104.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/math/host_device.h"

// Inlined even without optimization: a copy compiled for one instruction set must not be shared
// with code for another (kernels/cpu/simd/simd.h).
#if defined(__GNUC__) && !defined(__CUDACC__)
#define TRAINYARD_INLINE __attribute__((always_inline)) inline
#else
#define TRAINYARD_INLINE inline
#endif

namespace trainyard::math {

#ifndef __CUDA_ARCH__
namespace detail {

/// Returns 2^n as a float, n in [-126, 127].
TRAINYARD_INLINE float power_of_two(int32_t n) {
  const int32_t bits = (n + 127) << 23;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

/// The decomposition x = n ln 2 + r with |r| <= ln 2 / 2. n is read from the low bits of x / ln 2 +
/// 1.5 * 2^23.
struct Reduced {
  int32_t n;
  float r;
};
TRAINYARD_INLINE Reduced reduce(float x) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const float shifted = x * 1.44269504088896341f + kRound;
  int32_t bits;
  std::memcpy(&bits, &shifted, sizeof bits);
  const float n = shifted - kRound;
  // ln 2 is split in two parts; the product of n and the first is exact.
  return {bits - 0x4B400000, (x - n * 0.693359375f) - n * -2.12194440e-4f};
}

/// Returns e^r - 1 by its Taylor series for |r| <= ln 2 / 2; the truncation error is below 1e-8 of
/// r.
TRAINYARD_INLINE float expm1_series(float r) {
  float p = 1.0f / 5040;
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  return r + r * r * p;
}

}  // namespace detail
#endif

TRAINYARD_HD TRAINYARD_INLINE double exp(double x) { return std::exp(x); }
TRAINYARD_HD TRAINYARD_INLINE double tanh(double x) { return std::tanh(x); }
TRAINYARD_HD TRAINYARD_INLINE double erf(double x) { return std::erf(x); }

#ifdef __CUDA_ARCH__

TRAINYARD_HD TRAINYARD_INLINE float exp(float x) { return ::expf(x); }
TRAINYARD_HD TRAINYARD_INLINE float tanh(float x) { return ::tanhf(x); }
TRAINYARD_HD TRAINYARD_INLINE float erf(float x) { return ::erff(x); }

#else

TRAINYARD_HD TRAINYARD_INLINE float exp(float x) {
  x = x > 89.0f ? 89.0f : x;  // written so that NaN is propagated
  x = x < -110.0f ? -110.0f : x;
  const detail::Reduced a = detail::reduce(x);
  const float e = 1.0f + detail::expm1_series(a.r);
  // Scale by two factors, because 2^n itself may be outside float's range.
  const int32_t half = a.n >> 1;
  return e * detail::power_of_two(half) * detail::power_of_two(a.n - half);
}

/// Returns (e^2x - 1) / (e^2x + 1), computed from e^2x - 1, which is accurate near 0.
TRAINYARD_HD TRAINYARD_INLINE float tanh(float x) {
  float y = x < 0.0f ? -2.0f * x : 2.0f * x;
  y = y > 20.0f ? 20.0f : y;  // the result is 1 to the last bit
  const detail::Reduced a = detail::reduce(y);
  const float scale = detail::power_of_two(a.n);
  const float m = detail::expm1_series(a.r) * scale + (scale - 1.0f);
  const float t = m / (m + 2.0f);
  return x < 0.0f ? -t : t;
}

/// Uses, for |x| < 1, the Taylor series of erf, which is accurate near 0. Beyond, 1 - e^-x^2 t P(t)
/// with t = 1 / (1 + 0.45 x), the form of Hastings, "Approximations for Digital Computers" (1955);
/// the coefficients were fitted for this project (minimax, error 1e-9 before rounding).
TRAINYARD_HD TRAINYARD_INLINE float erf(float x) {
  const float a = x < 0.0f ? -x : x;
  const float z = a * a;
  // Coefficients 2 / sqrt(pi) * (-1)^k / (k! (2k + 1)).
  float series = -1.63658447e-07f;
  series = series * z + 1.64621144e-06f;
  series = series * z - 1.49256504e-05f;
  series = series * z + 0.00012055333f;
  series = series * z - 0.000854832702f;
  series = series * z + 0.00522397763f;
  series = series * z - 0.0268661706f;
  series = series * z + 0.112837917f;
  series = series * z - 0.376126389f;
  series = series * z + 1.12837917f;
  const float t = 1.0f / (1.0f + 0.45f * a);
  float p = 0.09256981f;
  p = p * t - 0.49410512f;
  p = p * t + 0.85716933f;
  p = p * t - 0.37580440f;
  p = p * t + 0.46017155f;
  p = p * t + 0.20100910f;
  p = p * t + 0.25898972f;
  const float tail = 1.0f - exp(-z) * t * p;
  const float y = a < 1.0f ? a * series : tail;
  return x < 0.0f ? -y : y;
}

#endif

}  // namespace trainyard::math
