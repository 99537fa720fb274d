// Tests of rounding to 16 bits and back: against the definition (the nearer one of the two
// neighbors, found by trying both in double), at the limits of the formats, and the loops of every
// backend against the formula.
#include "kernels/half.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/team.h"
#include "kernels/math/philox.h"
#include "src/base/half.h"

namespace trainyard {
namespace {

using math::Bf16;
using math::F16;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

float of_bits(uint32_t bits) { return std::bit_cast<float>(bits); }
uint16_t narrowed(float x) { return math::narrow<Bf16>(x).bits; }
uint16_t narrowed_f16(float x) { return math::narrow<F16>(x).bits; }

// Every 16-bit pattern is a number that rounds to itself.
TEST(Bf16, RepresentableValuesAreUnchanged) {
  for (uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    const Bf16 x{static_cast<uint16_t>(bits)};
    const float wide = math::widen(x);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(math::widen(math::narrow<Bf16>(wide))));
      EXPECT_EQ(math::narrow<Bf16>(wide).bits, x.bits | 0x40) << bits;
    } else {
      EXPECT_EQ(math::narrow<Bf16>(wide), x) << bits;
    }
  }
}

// Over all magnitudes including subnormals: no other bfloat16 is closer, and of two equally close
// numbers the result is the one whose last bit is even.
TEST(Bf16, RoundsToTheNearestAndTiesToEven) {
  int ties = 0;
  for (uint64_t i = 0; i < 300'000; ++i) {
    uint32_t bits = math::philox_u32(7, 1, 0, i) & 0x7FFFFFFFu;
    if (i % 3 == 0) bits = (bits & 0xFFFF0000u) | 0x8000u;  // a tie
    if (i % 3 == 1) bits = (bits & 0xFFFF0000u) | (0x7FFFu + i % 5);
    if (i % 7 == 0) bits &= 0x00FFFFFFu;  // subnormal or tiny
    const float x = of_bits(bits);
    if (!std::isfinite(x) || bits >= 0x7F7F0000u) continue;
    const uint16_t low = static_cast<uint16_t>(bits >> 16), high = static_cast<uint16_t>(low + 1);
    const double below = static_cast<double>(x) - math::widen(Bf16{low});
    const double above = static_cast<double>(math::widen(Bf16{high})) - static_cast<double>(x);
    const uint16_t nearest = below < above ? low : below > above ? high : low % 2 == 0 ? low : high;
    ties += below == above ? 1 : 0;
    ASSERT_EQ(narrowed(x), nearest) << bits;
    ASSERT_EQ(narrowed(-x), nearest | 0x8000) << bits;
  }
  EXPECT_GT(ties, 50'000);
}

TEST(Bf16, Edges) {
  EXPECT_EQ(narrowed(0.0f), 0x0000);
  EXPECT_EQ(narrowed(-0.0f), 0x8000);
  EXPECT_EQ(narrowed(kInfinity), 0x7F80);
  EXPECT_EQ(narrowed(-kInfinity), 0xFF80);
  EXPECT_EQ(narrowed(std::numeric_limits<float>::max()), 0x7F80) << "nearer to 2^128";
  EXPECT_EQ(narrowed(of_bits(0x7F7F7FFFu)), 0x7F7F) << "the largest that stays finite";
  EXPECT_EQ(narrowed(of_bits(0x7F7F8000u)), 0x7F80) << "a tie at the end goes to infinity";
  EXPECT_EQ(narrowed(of_bits(0x00000001u)), 0x0000) << "the smallest subnormal";
  EXPECT_EQ(narrowed(of_bits(0x00018000u)), 0x0002) << "a tie of subnormals";
  EXPECT_EQ(narrowed(of_bits(0x7F800001u)), 0x7FC0) << "a NaN of lower bits alone";
  EXPECT_EQ(narrowed(of_bits(0xFFFFFFFFu)), 0xFFFF) << "a NaN that rounding would carry over";
  EXPECT_EQ(narrowed(of_bits(0x7FC10000u)), 0x7FC1) << "a payload";
}

// Every 16-bit pattern has the value that the format defines, and rounds to itself.
TEST(F16, RepresentableValuesAreUnchanged) {
  for (uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    const F16 x{static_cast<uint16_t>(bits)};
    const float wide = math::widen(x);
    EXPECT_EQ(std::bit_cast<uint32_t>(wide), std::bit_cast<uint32_t>(from_f16(x.bits))) << bits;
    if (std::isnan(wide)) {
      EXPECT_EQ(narrowed_f16(wide), x.bits | 0x200) << bits;
      continue;
    }
    EXPECT_EQ(narrowed_f16(wide), x.bits) << bits;
    const int exponent = bits >> 10 & 0x1F;
    const int fraction = static_cast<int>(bits & 0x3FF);
    if (exponent == 0x1F) {
      EXPECT_TRUE(std::isinf(wide)) << bits;
      continue;
    }
    const double size =
        exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
    EXPECT_EQ(static_cast<double>(wide), bits >= 0x8000 ? -size : size) << bits;
  }
}

// Over all magnitudes including subnormals: no other number is closer, and of two equally close
// numbers the result is the one whose last bit is even.
TEST(F16, RoundsToTheNearestAndTiesToEven) {
  int ties = 0, subnormal = 0;
  for (uint64_t i = 0; i < 300'000; ++i) {
    const uint32_t u = math::philox_u32(7, 3, 0, i);
    // A number and a point between it and the next one: anywhere, in the middle, or near the
    // middle.
    const auto low = static_cast<uint16_t>(u % 0x7BFF), high = static_cast<uint16_t>(low + 1);
    const double a = static_cast<double>(math::widen(F16{low}));
    const double b = static_cast<double>(math::widen(F16{high}));
    const double share = i % 3 == 0   ? 0.5
                         : i % 3 == 1 ? 0.5 + (static_cast<double>(i % 5) - 2) / 4096
                                      : (u >> 16) / 65536.0;
    const auto x = static_cast<float>(a + share * (b - a));
    const double below = static_cast<double>(x) - a, above = b - static_cast<double>(x);
    const uint16_t nearest = below < above ? low : below > above ? high : low % 2 == 0 ? low : high;
    ties += below == above ? 1 : 0;
    subnormal += low < 0x400 ? 1 : 0;
    ASSERT_EQ(narrowed_f16(x), nearest) << x;
    ASSERT_EQ(narrowed_f16(-x), nearest | 0x8000) << x;
  }
  EXPECT_GT(ties, 50'000);
  EXPECT_GT(subnormal, 5'000);
}

TEST(F16, Edges) {
  EXPECT_EQ(narrowed_f16(0.0f), 0x0000);
  EXPECT_EQ(narrowed_f16(-0.0f), 0x8000);
  EXPECT_EQ(narrowed_f16(kInfinity), 0x7C00);
  EXPECT_EQ(narrowed_f16(-kInfinity), 0xFC00);
  EXPECT_EQ(narrowed_f16(std::numeric_limits<float>::max()), 0x7C00);
  EXPECT_EQ(narrowed_f16(65504.0f), 0x7BFF) << "the largest";
  EXPECT_EQ(narrowed_f16(65519.996f), 0x7BFF) << "the largest that stays finite";
  EXPECT_EQ(narrowed_f16(65520.0f), 0x7C00) << "a tie at the end goes to infinity";
  EXPECT_EQ(narrowed_f16(0x1p-14f), 0x0400) << "the least normal number";
  EXPECT_EQ(narrowed_f16(of_bits(0x387FFFFFu)), 0x0400) << "just below it";
  EXPECT_EQ(narrowed_f16(0x1p-24f), 0x0001) << "the least of all";
  EXPECT_EQ(narrowed_f16(0x1p-25f), 0x0000) << "a tie with zero";
  EXPECT_EQ(narrowed_f16(of_bits(0x33000001u)), 0x0001) << "a little more";
  EXPECT_EQ(narrowed_f16(of_bits(0x00000001u)), 0x0000) << "a subnormal float";
  EXPECT_EQ(narrowed_f16(of_bits(0x7F800001u)), 0x7E00) << "a NaN of lower bits alone";
  EXPECT_EQ(narrowed_f16(of_bits(0xFFFFFFFFu)), 0xFFFF);
  EXPECT_EQ(narrowed_f16(of_bits(0x7FC02000u)), 0x7E01) << "a payload";
}

// The lengths are odd, and some are long enough for several threads.
template <typename Half>
void expect_loops_are_the_formula() {
  kernels::cpu::Team team(3);
  for (const int64_t count : {0, 1, 31, 33, 1025, 70'003}) {
    std::vector<float> x(static_cast<size_t>(count)), y(x.size() + 1, 5.0f), plain(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] = of_bits(math::philox_u32(3, 2, 1, i));
      if (i % 2 == 0) x[i] = static_cast<float>(math::philox_u32(3, 2, 2, i)) * 0x1p-34f;
    }
    std::vector<Half> small(x.size() + 1, Half{0xABCD}), reference(x.size());
    kernels::cpu::narrow(count, x.data(), small.data(), team);
    kernels::reference::narrow(count, x.data(), reference.data());
    kernels::cpu::widen(count, small.data(), y.data(), team);
    kernels::reference::widen(count, small.data(), plain.data());
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(small[i], math::narrow<Half>(x[i])) << i;
      ASSERT_EQ(reference[i], small[i]) << i;
      const auto wide = std::bit_cast<uint32_t>(math::widen(small[i]));
      ASSERT_EQ(std::bit_cast<uint32_t>(y[i]), wide) << i;
      ASSERT_EQ(std::bit_cast<uint32_t>(plain[i]), wide) << i;
    }
    EXPECT_EQ(small[x.size()].bits, 0xABCD) << "written behind the end";
    EXPECT_EQ(y[x.size()], 5.0f);
  }
}
TEST(Bf16, LoopsMatchTheFormula) { expect_loops_are_the_formula<Bf16>(); }
TEST(F16, LoopsMatchTheFormula) { expect_loops_are_the_formula<F16>(); }

TEST(Half, ExactConversionsAreInverse) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    EXPECT_EQ(exact_f16(from_f16(half)), half);
    EXPECT_EQ(exact_bf16(from_bf16(half)), half);
  }
  for (const float other : {1.0F + 0x1p-11F, 65520.0F, 0x1p-25F, 0x1.8p-24F, 1e-30F, 1e30F}) {
    EXPECT_EQ(exact_f16(other), std::nullopt) << other;
    EXPECT_EQ(exact_f16(-other), std::nullopt) << other;
  }
  EXPECT_EQ(exact_bf16(1.0F + 0x1p-8F), std::nullopt);
}

}  // namespace
}  // namespace trainyard
