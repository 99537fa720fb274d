// Tests of products of a few rows: their values are those of the definition, and the bits of a row
// depend on that row and the weights alone, whatever the team, the other rows and the storage.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "kernels/cpu/team.h"
#include "kernels/gemm.h"
#include "kernels/math/half.h"
#include "kernels/math/philox.h"

namespace trainyard::kernels {
namespace {

std::vector<float> few_rows_floats(int64_t count, uint32_t stream) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = 2 * math::uniform01<float>(math::philox_u32(1, stream, 0, i)) - 1;
  }
  return values;
}

struct FewRowsOperands {
  std::vector<float> x, w, b, y;
  explicit FewRowsOperands(const GemmDims& d)
      : x(few_rows_floats(d.N * d.F, 1)),
        w(few_rows_floats(d.K * d.F, 2)),
        b(few_rows_floats(d.K, 3)),
        y(few_rows_floats(d.N * d.K, 4)) {}  // what adds adds to, and other products overwrite
};

std::vector<float> few_rows_product(const GemmDims& d, const FewRowsOperands& o, int threads,
                                    bool bias = true, cpu::Stored stored = cpu::Stored::kF32,
                                    const void* w = nullptr) {
  cpu::Team team(threads);
  cpu::GemmForward gemm(d, bias, team, {.weight = stored, .few_rows = true});
  EXPECT_EQ(gemm.workspace_bytes(), 0);
  std::vector<float> y = o.y;
  gemm.run(o.x.data(), w == nullptr ? o.w.data() : w, bias ? o.b.data() : nullptr, y.data(),
           nullptr);
  return y;
}

void expect_few_rows_defined(const GemmDims& d, bool bias) {
  const FewRowsOperands o(d);
  const std::vector<float> y = few_rows_product(d, o, 2, bias);
  for (int64_t n = 0; n < d.N; ++n) {
    for (int64_t k = 0; k < d.K; ++k) {
      double sum = bias ? static_cast<double>(o.b[static_cast<size_t>(k)]) : 0, size = 1;
      for (int64_t f = 0; f < d.F; ++f) {
        const double term = static_cast<double>(o.x[static_cast<size_t>(n * d.F + f)]) *
                            static_cast<double>(o.w[static_cast<size_t>(k * d.F + f)]);
        sum += term;
        size += std::fabs(term);
      }
      const auto at = static_cast<size_t>(n * d.K + k);
      if (d.adds) sum += static_cast<double>(o.y[at]);
      ASSERT_NEAR(static_cast<double>(y[at]), sum, 1e-6 * size)
          << "row " << n << " column " << k << " of " << d.N << " x " << d.K << " x " << d.F;
    }
  }
}

TEST(FewRows, AreTheDefinition) {
  for (const int64_t F : {1, 3, 4, 7, 8, 15, 16, 17, 31, 32, 33, 47, 64, 576, 1025}) {
    for (const int64_t K : {1, 2, 3, 4, 5, 16, 17, 100}) {
      for (const int64_t N : {1, 2, 3, 16}) {
        expect_few_rows_defined({N, K, F}, true);
        expect_few_rows_defined({N, K, F, true}, false);
      }
    }
  }
  expect_few_rows_defined({2, 1003, 576}, true);  // several chunks, the last of which is small
}

TEST(FewRows, HaveTheBitsOfEachRowAlone) {
  for (const int64_t F : {5, 16, 45, 576}) {
    const GemmDims all{cpu::kFewRowsMax, 501, F}, one{1, 501, F};
    const FewRowsOperands o(all);
    const std::vector<float> together = few_rows_product(all, o, 3);
    for (int64_t n = 0; n < all.N; ++n) {
      FewRowsOperands row = o;
      row.x.erase(row.x.begin(), row.x.begin() + n * F);
      row.y.resize(static_cast<size_t>(one.K));
      const std::vector<float> alone = few_rows_product(one, row, 1);
      const auto begin = together.begin() + n * all.K;
      EXPECT_EQ(alone, std::vector<float>(begin, begin + all.K)) << n << " F " << F;
    }
  }
}

template <typename Half>
void expect_equal_bits_in_16(const GemmDims& d, cpu::Stored stored) {
  FewRowsOperands o(d);
  std::vector<Half> halves;
  for (float& value : o.w) {
    halves.push_back(math::narrow<Half>(value));
    value = math::widen(halves.back());
  }
  EXPECT_EQ(few_rows_product(d, o, 2, true, stored, halves.data()), few_rows_product(d, o, 2))
      << "F " << d.F;
}

TEST(FewRows, HaveTheBitsOfFloatWeightsInSixteenBits) {
  for (const int64_t F : {1, 9, 16, 17, 31, 32, 100, 576}) {
    for (const int64_t N : {1, 3}) {
      expect_equal_bits_in_16<math::Bf16>({N, 203, F}, cpu::Stored::kBf16);
      expect_equal_bits_in_16<math::F16>({N, 203, F}, cpu::Stored::kF16);
    }
  }
}

// The numbers include those that are denormal in 16 bits, and the largest ones.
TEST(FewRows, WidenEveryNumber) {
  constexpr int64_t kF = 16;
  std::vector<math::F16> numbers;
  FewRowsOperands o({1, 65536 / kF, kF});
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const bool is_finite = (bits & 0x7C00u) != 0x7C00u;
    numbers.push_back({static_cast<uint16_t>(is_finite ? bits : 0)});
  }
  for (int64_t one = 0; one < kF; ++one) {
    o.x.assign(kF, 0.0f);
    o.x[static_cast<size_t>(one)] = 1;
    const GemmDims d{1, 65536 / kF, kF};
    const std::vector<float> y =
        few_rows_product(d, o, 1, false, cpu::Stored::kF16, numbers.data());
    for (int64_t k = 0; k < d.K; ++k) {
      ASSERT_EQ(y[static_cast<size_t>(k)], math::widen(numbers[static_cast<size_t>(k * kF + one)]));
    }
  }
}

TEST(FewRows, RefuseMoreRows) {
  cpu::Team team(1);
  EXPECT_ANY_THROW(cpu::GemmForward({cpu::kFewRowsMax + 1, 4, 4}, false, team, {.few_rows = true}));
}

}  // namespace
}  // namespace trainyard::kernels
