// Rounding to bfloat16 and back: against the definition (the nearest of the two neighbours, found
// by trying both, in double) and at the edges; the loops of every backend against the formula.
#include "kernels/bf16.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/team.h"
#include "kernels/math/philox.h"

namespace trainyard {
namespace {

using math::Bf16;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

float of_bits(uint32_t bits) { return std::bit_cast<float>(bits); }
uint16_t narrowed(float x) { return math::narrow(x).bits; }

// Every 16-bit pattern is a number that rounds to itself.
TEST(Bf16, WhatFitsIsUnchanged) {
  for (uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    const Bf16 x{static_cast<uint16_t>(bits)};
    const float wide = math::widen(x);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(math::widen(math::narrow(wide))));
      EXPECT_EQ(math::narrow(wide).bits, x.bits | 0x40) << bits;
    } else {
      EXPECT_EQ(math::narrow(wide), x) << bits;
    }
  }
}

// Over all magnitudes, subnormals among them: no other bfloat16 is closer, and of two as close the
// one with the even last bit is taken.
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
    const double below = static_cast<double>(x) - math::widen({low});
    const double above = static_cast<double>(math::widen({high})) - static_cast<double>(x);
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

// Odd lengths, and long enough for several threads.
TEST(Bf16, LoopsAreTheFormula) {
  kernels::cpu::Team team(3);
  for (const int64_t count : {0, 1, 31, 33, 1025, 70'003}) {
    std::vector<float> x(static_cast<size_t>(count)), y(x.size() + 1, 5.0f), plain(x.size());
    for (size_t i = 0; i < x.size(); ++i) x[i] = of_bits(math::philox_u32(3, 2, 1, i));
    std::vector<Bf16> small(x.size() + 1, Bf16{0xABCD}), reference(x.size());
    kernels::cpu::narrow(count, x.data(), small.data(), team);
    kernels::reference::narrow(count, x.data(), reference.data());
    kernels::cpu::widen(count, small.data(), y.data(), team);
    kernels::reference::widen(count, small.data(), plain.data());
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(small[i], math::narrow(x[i])) << i;
      ASSERT_EQ(reference[i], small[i]) << i;
      const auto wide = static_cast<uint32_t>(small[i].bits) << 16;
      ASSERT_EQ(std::bit_cast<uint32_t>(y[i]), wide) << i;
      ASSERT_EQ(std::bit_cast<uint32_t>(plain[i]), wide) << i;
    }
    EXPECT_EQ(small[x.size()].bits, 0xABCD) << "written behind the end";
    EXPECT_EQ(y[x.size()], 5.0f);
  }
}

}  // namespace
}  // namespace trainyard
