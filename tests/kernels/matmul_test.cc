// Tests of the property on which Gemm's forward pass and predictions rely: a row of a product
// depends only on its own operand row.
#include "kernels/cpu/matmul.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstring>
#include <random>
#include <vector>

namespace trainyard::kernels::cpu {
namespace {

/// With equal rows in a, all rows of c must be equal. Returns the first that differs from row 0, or
/// -1.
int64_t first_other_row(int64_t M, int64_t N, int64_t K, bool bias) {
  std::mt19937 random(static_cast<unsigned>(M * 31 + N * 7 + K));
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> a(static_cast<size_t>(M * K)), b(static_cast<size_t>(K * N)),
      c(static_cast<size_t>(M * N), NAN), added(static_cast<size_t>(N));
  for (size_t k = 0; k < static_cast<size_t>(K); ++k) {
    const float value = uniform(random);
    for (size_t m = 0; m < static_cast<size_t>(M); ++m) a[m * static_cast<size_t>(K) + k] = value;
  }
  for (float& value : b) value = uniform(random);
  for (float& value : added) value = uniform(random);
  Matmul product({.M = M,
                  .N = N,
                  .K = K,
                  .a = {K, 1},
                  .b = {1, K},
                  .c = {N, 1},
                  .bias = bias,
                  .rows_alike = true});
  std::vector<std::byte> workspace(static_cast<size_t>(product.workspace_bytes()) + 64);
  product.run(a.data(), b.data(), bias ? added.data() : nullptr, c.data(), workspace.data());
  for (int64_t m = 1; m < M; ++m) {
    if (std::memcmp(c.data(), c.data() + m * N, static_cast<size_t>(N) * sizeof(float)) != 0) {
      return m;
    }
  }
  return -1;
}

TEST(Matmul, EqualRowsGiveEqualRows) {
  for (int64_t M = 64; M <= 400; ++M) {
    for (const int64_t N : {2, 8, 11, 16, 128}) {
      for (const int64_t K : {16, 100}) {
        ASSERT_EQ(first_other_row(M, N, K, M % 2 == 0), -1) << M << " x " << K << " x " << N;
      }
    }
  }
  for (const int64_t M : {1000, 1024, 4096, 6400}) {
    for (const int64_t N : {10, 64, 512}) {
      ASSERT_EQ(first_other_row(M, N, 128, true), -1) << M << " x 128 x " << N;
    }
  }
}

}  // namespace
}  // namespace trainyard::kernels::cpu
