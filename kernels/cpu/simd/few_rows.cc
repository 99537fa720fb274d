#include "kernels/cpu/simd/few_rows.h"

#include <utility>

#include "kernels/cpu/simd/products.h"
#include "kernels/cpu/simd/variant.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace trainyard::kernels::cpu {
namespace {

[[gnu::always_inline]] inline Vector load(const float* x) {
  return *reinterpret_cast<const Vector*>(x);
}
#if defined(__AVX512F__)
[[gnu::always_inline]] inline __m256i bits_at(const void* x) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(x));
}
// All lanes by a mask, since GCC 12 warns of the undefined lanes of the functions without one.
[[gnu::always_inline]] inline Vector load(const math::Bf16* x) {
  const __m512i wide = _mm512_maskz_cvtepu16_epi32(0xFFFF, bits_at(x));
  return reinterpret_cast<Vector>(_mm512_maskz_slli_epi32(0xFFFF, wide, 16));
}
[[gnu::always_inline]] inline Vector load(const math::F16* x) {
  return reinterpret_cast<Vector>(_mm512_maskz_cvtph_ps(0xFFFF, bits_at(x)));
}
#elif defined(__AVX2__)  // with F16C, as all of x86-64-v3
[[gnu::always_inline]] inline __m128i bits_at(const void* x) {
  return _mm_loadu_si128(static_cast<const __m128i*>(x));
}
[[gnu::always_inline]] inline Vector load(const math::Bf16* x) {
  return reinterpret_cast<Vector>(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits_at(x)), 16));
}
[[gnu::always_inline]] inline Vector load(const math::F16* x) {
  return reinterpret_cast<Vector>(_mm256_cvtph_ps(bits_at(x)));
}
#else
template <typename Half>
[[gnu::always_inline]] inline Vector load(const Half* x) {
  Vector wide;
  for (int64_t i = 0; i < kLanes; ++i) wide[i] = math::widen(x[i]);
  return wide;
}
#endif

/// Loads fewer numbers than a vector has; the others are 0.
template <typename Number>
[[gnu::always_inline]] inline Vector load_some(const Number* x, int64_t count) {
  Number padded[kLanes] = {};
  for (int64_t i = 0; i < count; ++i) padded[i] = x[i];
  return load(padded);
}

/// Returns the vector whose lane i is lane i ^ kHalf of `v`.
template <int kHalf, int... kLane>
[[gnu::always_inline]] inline Vector exchange(Vector v, std::integer_sequence<int, kLane...>) {
  return __builtin_shufflevector(v, v, (kLane ^ kHalf)...);
}

/// Adds the lanes in pairs, which are kHalf apart at first, until lane 0 has the sum of all.
template <int kHalf = kLanes / 2>
[[gnu::always_inline]] inline float sum_of(Vector v) {
  v += exchange<kHalf>(v, std::make_integer_sequence<int, static_cast<int>(kLanes)>());
  if constexpr (kHalf > 1) {
    return sum_of<kHalf / 2>(v);
  } else {
    return v[0];
  }
}

/// Multiplies kX rows of x with a row of w. Two vectors of each product are summed apart, so that
/// an addition does not wait for the one before.
template <int64_t kX, typename Weight>
[[gnu::always_inline]] inline void multiply(int64_t F, const float* x, const Weight* w,
                                            float (&products)[kX]) {
  Vector even[kX] = {}, odd[kX] = {};
  int64_t f = 0;
  for (; f + 2 * kLanes <= F; f += 2 * kLanes) {
    const Vector first = load(w + f), second = load(w + f + kLanes);
    for (int64_t i = 0; i < kX; ++i) {
      even[i] += load(x + i * F + f) * first;
      odd[i] += load(x + i * F + f + kLanes) * second;
    }
  }
  if (f + kLanes <= F) {
    const Vector first = load(w + f);
    for (int64_t i = 0; i < kX; ++i) even[i] += load(x + i * F + f) * first;
    f += kLanes;
  }
  if (f < F) {
    const Vector second = load_some(w + f, F - f);
    for (int64_t i = 0; i < kX; ++i) odd[i] += load_some(x + i * F + f, F - f) * second;
  }
  for (int64_t i = 0; i < kX; ++i) products[i] = sum_of(even[i] + odd[i]);
}

/// Computes the result of kX rows of x, from row n on, with row k of w, which is in the L1 cache
/// after the first call.
template <int64_t kX, typename Weight>
void write_products(const FewRows<Weight>& o, int64_t n, int64_t k) {
  float products[kX];
  multiply<kX>(o.F, o.x + n * o.F, o.w + k * o.F, products);
  for (int64_t i = 0; i < kX; ++i) {
    float& result = o.y[(n + i) * o.y_row + k];
    const float product = o.b == nullptr ? products[i] : products[i] + o.b[k];
    result = o.adds ? result + product : product;
  }
}

// The rows of w are read one after another. Four at a time, which would save loads of x, take twice
// as long, since the processor does not fetch so many short streams from memory ahead (AMD EPYC
// 9004: 36 GB/s by two cores instead of 16 for F = 576 in bfloat16).
template <typename Weight>
void few_rows(const FewRows<Weight>& o) {
  for (int64_t k = 0; k < o.columns; ++k) {
    int64_t n = 0;
    for (; n + 4 <= o.rows; n += 4) write_products<4>(o, n, k);
    for (; n < o.rows; ++n) write_products<1>(o, n, k);
  }
}

}  // namespace

const FewRowsLoops& TRAINYARD_VARIANT(few_rows_loops)();
const FewRowsLoops& TRAINYARD_VARIANT(few_rows_loops)() {
  static constexpr FewRowsLoops kLoops = {few_rows<float>, few_rows<math::Bf16>,
                                          few_rows<math::F16>};
  return kLoops;
}

}  // namespace trainyard::kernels::cpu
