// kernels/cpu/simd/products.h: small matrix products for use inside other loops, with sums in
// registers. All functions are inlined or local to the including source, for the reason given in
// simd.h.
#pragma once

#include <cstdint>

namespace trainyard::kernels::cpu {

#if defined(__AVX512F__)
constexpr int64_t kLanes = 16, kBlockVectors = 4, kBlockRows = 6;  // sums use 24 of 32 registers
#elif defined(__AVX2__)
constexpr int64_t kLanes = 8, kBlockVectors = 2, kBlockRows = 6;  // sums use 12 of 16 registers
#else
constexpr int64_t kLanes = 4, kBlockVectors = 2, kBlockRows = 4;
#endif
typedef float Vector __attribute__((vector_size(kLanes * 4), aligned(4), may_alias));

/// c, of kRows rows of kVectors vectors, is assigned (or increased by) the sum over k of a[r *
/// a_row + k * a_step] * b[k].
template <int64_t kRows, int64_t kVectors, bool kAccumulate>
[[gnu::always_inline]] inline void multiply_block(int64_t K, const float* a, int64_t a_row,
                                                  int64_t a_step, const float* b, int64_t b_row,
                                                  float* c, int64_t c_row) {
  Vector sum[kRows][kVectors];
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t j = 0; j < kVectors; ++j) {
      sum[r][j] =
          kAccumulate ? *reinterpret_cast<const Vector*>(c + r * c_row + j * kLanes) : Vector{};
    }
  }
  for (int64_t k = 0; k < K; ++k, a += a_step, b += b_row) {
    Vector column[kVectors];
    for (int64_t j = 0; j < kVectors; ++j) {
      column[j] = *reinterpret_cast<const Vector*>(b + j * kLanes);
    }
    for (int64_t r = 0; r < kRows; ++r) {
      const float factor = a[r * a_row];
      for (int64_t j = 0; j < kVectors; ++j) sum[r][j] += factor * column[j];
    }
  }
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t j = 0; j < kVectors; ++j) {
      *reinterpret_cast<Vector*>(c + r * c_row + j * kLanes) = sum[r][j];
    }
  }
}

/// Does what multiply_block does for any number of rows M: in blocks of kRows rows, then the
/// remainder.
template <int64_t kRows, int64_t kVectors, bool kAccumulate>
static void multiply_rows(int64_t M, int64_t K, const float* a, int64_t a_row, int64_t a_step,
                          const float* b, int64_t b_row, float* c, int64_t c_row) {
  int64_t m = 0;
  for (; m + kRows <= M; m += kRows) {
    multiply_block<kRows, kVectors, kAccumulate>(K, a + m * a_row, a_row, a_step, b, b_row,
                                                 c + m * c_row, c_row);
  }
  if constexpr (kRows > 1) {
    if (m < M) {
      multiply_rows<kRows - 1, kVectors, kAccumulate>(M - m, K, a + m * a_row, a_row, a_step, b,
                                                      b_row, c + m * c_row, c_row);
    }
  }
}

/// c [M, vectors] (+)= a [M, K] b [K, vectors] for any number of vectors.
template <int64_t kRows, bool kAccumulate>
static void multiply_columns(int64_t M, int64_t vectors, int64_t K, const float* a, int64_t a_row,
                             int64_t a_step, const float* b, int64_t b_row, float* c,
                             int64_t c_row) {
  for (; vectors >= kBlockVectors; vectors -= kBlockVectors) {
    multiply_rows<kRows, kBlockVectors, kAccumulate>(M, K, a, a_row, a_step, b, b_row, c, c_row);
    b += kBlockVectors * kLanes;
    c += kBlockVectors * kLanes;
  }
  if (kBlockVectors > 3 && vectors == 3) {
    multiply_rows<kRows, 3, kAccumulate>(M, K, a, a_row, a_step, b, b_row, c, c_row);
  } else if (kBlockVectors > 2 && vectors == 2) {
    multiply_rows<kRows, 2, kAccumulate>(M, K, a, a_row, a_step, b, b_row, c, c_row);
  } else if (vectors == 1) {
    multiply_rows<kRows, 1, kAccumulate>(M, K, a, a_row, a_step, b, b_row, c, c_row);
  }
}

}  // namespace trainyard::kernels::cpu
