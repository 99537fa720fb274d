// Tests of the mode in which denormal numbers count as 0: its effect, which threads it applies to,
// and that it ends.
#include "kernels/cpu/flush_denormals.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

#include "kernels/cpu/team.h"

namespace trainyard::kernels::cpu {
namespace {

constexpr float kDenormal = 1e-40f;
constexpr float kSmall = 1e-30f;  // a normal number whose square is denormal

// Function calls that are not inlined, because the compiler does not know the mode
// (flush_denormals.h).
[[gnu::noinline]] float product(float x, float y) { return x * y; }
[[gnu::noinline]] double product(double x, double y) { return x * y; }

TEST(FlushDenormals, ZeroesInputsAndOutputs) {
  EXPECT_EQ(product(kDenormal, 1.0f), kDenormal);
  EXPECT_NE(product(kSmall, 1e-10f), 0);
  {
    const FlushDenormals flush;
    EXPECT_EQ(product(kDenormal, 1e10f), 0) << "an operand";
    EXPECT_EQ(product(kSmall, 1e-10f), 0) << "a result";
    EXPECT_EQ(product(std::numeric_limits<double>::min(), 0.5), 0);
    EXPECT_NE(product(std::numeric_limits<float>::min(), 1.0f), 0) << "the least that is kept";
    EXPECT_TRUE(std::signbit(product(-kSmall, 1e-10f))) << "the sign stays";
  }
  EXPECT_EQ(product(kDenormal, 1.0f), kDenormal);
}

TEST(FlushDenormals, RestoresTheEarlierMode) {
  ASSERT_EQ(flush_mode(), 0u);
  const auto control = float_control();
  {
    const FlushDenormals outer;
    {
      const FlushDenormals inner;
      EXPECT_EQ(flush_mode(), kFlushBits);
    }
    EXPECT_EQ(flush_mode(), kFlushBits);
  }
  EXPECT_EQ(float_control(), control);
  try {
    const FlushDenormals flush;
    throw 1;
  } catch (int) {
  }
  EXPECT_EQ(flush_mode(), 0u);
}

// If threads had different modes, a sum's bits would depend on the thread that computed each part.
TEST(FlushDenormals, AllThreadsOfATeamHaveTheCallersMode) {
  for (const int size : {1, 2, 4}) {
    Team team(size);
    const auto products = [&] {
      std::vector<float> found(static_cast<size_t>(size));
      team.run(size, [&](int i) { found[static_cast<size_t>(i)] = product(kSmall, 1e-10f); });
      return found;
    };
    for (int round = 0; round < 3; ++round) {
      for (const float value : products()) EXPECT_GT(value, 0) << size;
      const FlushDenormals flush;
      for (const float value : products()) EXPECT_EQ(value, 0) << size;
    }
  }
}

TEST(FlushDenormals, ATeamFollowsTheModeOfItsCaller) {
  const auto flushed = std::make_unique<FlushDenormals>();
  Team team(2);
  std::array<uint64_t, 2> modes{};
  const auto look = [&] {
    team.run(2, [&](int i) { modes[static_cast<size_t>(i)] = flush_mode(); });
  };
  look();
  EXPECT_EQ(modes, (std::array<uint64_t, 2>{kFlushBits, kFlushBits}));
  std::jthread([&] {
    set_flush_mode(0);
    look();
  }).join();
  EXPECT_EQ(modes, (std::array<uint64_t, 2>{0, 0}));
}

}  // namespace
}  // namespace trainyard::kernels::cpu
