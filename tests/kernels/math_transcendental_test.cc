// Checks the float functions exp, tanh and erf against the library's double versions, over their
// whole range.
#include "kernels/math/transcendental.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace trainyard::math {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Returns the error in units in the last place of the exact value; for subnormal values, in units
// of the smallest normal number.
double ulps(float actual, double exact) {
  const float rounded = static_cast<float>(exact);
  const double unit =
      std::max(std::fabs(static_cast<double>(std::nextafter(rounded, kInfinity)) - rounded),
               static_cast<double>(std::numeric_limits<float>::min()) * 1.2e-7);
  return std::fabs(static_cast<double>(actual) - exact) / unit;
}

template <typename F>
double worst(float low, float high, const F& error) {
  constexpr int kPoints = 200'000;
  double greatest = 0;
  for (int i = 0; i <= kPoints; ++i) {
    const float x = low + (high - low) * static_cast<float>(i) / kPoints;
    greatest = std::max(greatest, error(x));
  }
  return greatest;
}

TEST(Transcendental, ExpIsWithinTwoUnits) {
  const auto error = [](float x) { return ulps(exp(x), std::exp(static_cast<double>(x))); };
  EXPECT_LT(worst(-87, 88.7f, error), 2.0);
  EXPECT_LT(worst(-1, 1, error), 2.0);
  EXPECT_LT(worst(-103, -87, error), 2.0);
  EXPECT_EQ(exp(0.0f), 1.0f);
}

TEST(Transcendental, TanhIsWithinThreeUnits) {
  const auto error = [](float x) { return ulps(tanh(x), std::tanh(static_cast<double>(x))); };
  EXPECT_LT(worst(-10, 10, error), 3.0);
  EXPECT_LT(worst(-1e-3f, 1e-3f, error), 3.0);
  EXPECT_EQ(tanh(0.0f), 0.0f);
}

TEST(Transcendental, ErfIsWithinTwoTenMillionths) {
  const auto error = [](float x) {
    return std::fabs(static_cast<double>(erf(x)) - std::erf(static_cast<double>(x)));
  };
  EXPECT_LT(worst(-10, 10, error), 2e-7);
  EXPECT_LT(worst(-1.1f, 1.1f, error), 2e-7);
}

TEST(Transcendental, ExtremesAndNaN) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(exp(kInfinity), kInfinity);
  EXPECT_EQ(exp(88.8f), kInfinity);
  EXPECT_EQ(exp(-kInfinity), 0.0f);
  EXPECT_EQ(exp(-1e30f), 0.0f);
  EXPECT_EQ(tanh(kInfinity), 1.0f);
  EXPECT_EQ(tanh(-kInfinity), -1.0f);
  EXPECT_EQ(erf(kInfinity), 1.0f);
  EXPECT_EQ(erf(-kInfinity), -1.0f);
  EXPECT_TRUE(std::isnan(exp(nan)));
  EXPECT_TRUE(std::isnan(tanh(nan)));
  EXPECT_TRUE(std::isnan(erf(nan)));
}

}  // namespace
}  // namespace trainyard::math
