// Tests of the property on which Gemm's forward pass and predictions rely: a row of a product
// depends only on its own operand row. Tests of products that are too narrow to be divided over
// threads along their usual dimension.
#include "kernels/cpu/matmul.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/cpu/team.h"
#include "kernels/gemm.h"

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

std::vector<float> drawn(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = uniform(random);
  return values;
}

/// The sums have up to 2,048 terms of at most 1, and other orders than those of the reference.
void expect_near(const std::vector<float>& got, const std::vector<float>& wanted, const char* of) {
  for (size_t i = 0; i < wanted.size(); ++i) {
    ASSERT_NEAR(got[i], wanted[i], 1e-4 * (1 + std::fabs(wanted[i]))) << of << " " << i;
  }
}

/// Memory at a multiple of 64 bytes, as kernels need it.
struct Workspace {
  explicit Workspace(int64_t bytes) : memory(static_cast<size_t>(bytes) + 64) {}
  void* get() {
    return memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
  }
  std::vector<std::byte> memory;
};

/// Compares all products of a layer with the reference. Outputs are NaN before, so that an element
/// that no thread computes is found.
void expect_the_reference(const GemmDims& d, int threads) {
  Team team(threads);
  const std::vector<float> x = drawn(d.N * d.F, 1), w = drawn(d.K * d.F, 2), b = drawn(d.K, 3),
                           dy = drawn(d.N * d.K, 4);
  const std::vector<float> y0 = d.adds ? dy : std::vector<float>(dy.size(), NAN),
                           dx0 = d.adds ? x : std::vector<float>(x.size(), NAN);
  std::vector<float> y = y0, dx = dx0, dw(w.size(), NAN), db(b.size(), NAN);
  std::vector<float> wanted_y = y0, wanted_dx = dx0, wanted_dw(w.size()), wanted_db(b.size());
  reference::gemm_forward<float>(d, x.data(), w.data(), b.data(), wanted_y.data());
  reference::gemm_backward<float>(d, x.data(), w.data(), dy.data(), wanted_dx.data(),
                                  wanted_dw.data(), wanted_db.data());
  GemmForward forward(d, true, team);
  forward.run(x.data(), w.data(), b.data(), y.data(), Workspace(forward.workspace_bytes()).get());
  GemmBackward backward(d, true, true, team);
  backward.run(x.data(), w.data(), dy.data(), dx.data(), dw.data(), db.data(),
               Workspace(backward.workspace_bytes()).get());
  expect_near(y, wanted_y, "y");
  expect_near(dx, wanted_dx, "dx");
  expect_near(dw, wanted_dw, "dw");
  expect_near(db, wanted_db, "db");
}

// A rank of 16, with more rows than threads need: y and dx are divided along N, dw along F.
TEST(NarrowProducts, AreThoseOfTheReference) {
  for (const int threads : {1, 2, 3, 5}) {
    for (const bool adds : {false, true}) {
      for (const GemmDims& d :
           {GemmDims{513, 16, 576}, GemmDims{513, 576, 16}, GemmDims{200, 10, 400},
            GemmDims{330, 20, 20}, GemmDims{64, 16, 2048}}) {
        SCOPED_TRACE(std::to_string(d.N) + " rows of " + std::to_string(d.F) + " times " +
                     std::to_string(d.K) + ", threads " + std::to_string(threads));
        expect_the_reference({d.N, d.K, d.F, adds}, threads);
      }
    }
  }
}

TEST(NarrowProducts, GiveEqualRowsForEqualRows) {
  for (const int64_t N : {192, 200, 513, 520}) {
    const GemmDims d{N, 16, 576};
    Team team(3);
    const std::vector<float> row = drawn(d.F, 1), w = drawn(d.K * d.F, 2);
    std::vector<float> x, y(static_cast<size_t>(d.N * d.K), NAN);
    for (int64_t n = 0; n < N; ++n) x.insert(x.end(), row.begin(), row.end());
    GemmForward forward(d, false, team);
    forward.run(x.data(), w.data(), nullptr, y.data(), Workspace(forward.workspace_bytes()).get());
    for (int64_t n = 1; n < N; ++n) {
      ASSERT_EQ(std::memcmp(y.data(), y.data() + n * d.K, static_cast<size_t>(d.K) * 4), 0) << n;
    }
  }
}

}  // namespace
}  // namespace trainyard::kernels::cpu
