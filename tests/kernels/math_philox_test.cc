// Checks Philox against the test vectors that its authors publish with Random123 (kat_vectors,
// philox4x32-10): a mistake in a constant or a round changes every random number of every job.
#include "kernels/math/philox.h"

#include <gtest/gtest.h>

#include "kernels/math/dropout.h"

namespace trainyard::math {
namespace {

struct KnownAnswer {
  Philox4 counter;
  uint32_t key0, key1;
  Philox4 answer;
};

TEST(Philox, GivesTheKnownAnswers) {
  const KnownAnswer known[] = {
      {{{0, 0, 0, 0}}, 0, 0, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}},
      {{{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}},
       0xffffffff,
       0xffffffff,
       {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}},
      // The counter and key are digits of pi.
      {{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
       0xa4093822,
       0x299f31d0,
       {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}},
  };
  for (const KnownAnswer& k : known) {
    const Philox4 got = philox4x32_10(k.counter, k.key0, k.key1);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(got.v[i], k.answer.v[i]) << i;
  }
}

TEST(Philox, CountsBlocksOfFourAndSeparatesItsKeys) {
  for (uint64_t i = 0; i < 9; ++i) {
    EXPECT_EQ(philox_u32(7, 3, 5, i), philox_block(7, 3, 5, i / 4).v[i % 4]);
  }
  const uint32_t base = philox_u32(7, 3, 5, 0);
  EXPECT_NE(base, philox_u32(8, 3, 5, 0));
  // both words of the key matter
  EXPECT_NE(base, philox_u32(uint64_t{7} | uint64_t{1} << 40, 3, 5, 0));
  EXPECT_NE(base, philox_u32(7, 4, 5, 0));
  EXPECT_NE(base, philox_u32(7, 3, 6, 0));
  EXPECT_NE(base, philox_u32(7, 3, 5, uint64_t{4} << 32));  // both words of the index matter
}

TEST(Philox, DrawsTheSameUniformNumbersInBothPrecisions) {
  EXPECT_EQ(uniform01<float>(0), 0.0f);
  EXPECT_LT(uniform01<float>(0xffffffff), 1.0f);
  double sum = 0;
  constexpr uint64_t kCount = 100000;
  for (uint64_t i = 0; i < kCount; ++i) {
    const uint32_t u = philox_u32(1, 2, 3, i);
    EXPECT_EQ(static_cast<double>(uniform01<float>(u)), uniform01<double>(u));
    sum += uniform01<double>(u);
  }
  EXPECT_NEAR(sum / kCount, 0.5, 0.005);  // five standard errors
}

TEST(Dropout, DropsTheRequestedShare) {
  for (const double ratio : {0.0, 0.1, 0.5, 0.999}) {
    const uint32_t threshold = dropout_threshold(ratio);
    int64_t dropped = 0;
    constexpr int64_t kCount = 100000;
    for (int64_t i = 0; i < kCount; ++i) {
      dropped += dropout_keeps(philox_u32(9, 8, 7, static_cast<uint64_t>(i)), threshold) ? 0 : 1;
    }
    EXPECT_NEAR(static_cast<double>(dropped) / kCount, ratio, 0.008);
    if (ratio == 0) {
      EXPECT_EQ(dropped, 0);
    }
  }
}

}  // namespace
}  // namespace trainyard::math
