// Tests of the formulas of activations: known values, extremes, NaN. The engine's gradient test
// checks derivatives.
#include "kernels/math/activations.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace trainyard::math {
namespace {

template <typename T>
class Activations : public ::testing::Test {};
using Floats = ::testing::Types<float, double>;
TYPED_TEST_SUITE(Activations, Floats);

constexpr double kHuge = 1e30;

TYPED_TEST(Activations, GiveKnownValues) {
  using T = TypeParam;
  const double tolerance = std::is_same_v<T, float> ? 1e-7 : 1e-15;
  EXPECT_EQ(Relu::f(T(-2)), T(0));
  EXPECT_EQ(Relu::f(T(3)), T(3));
  EXPECT_NEAR(Sigmoid::f(T(1)), 0.73105857863000487925, tolerance);
  EXPECT_NEAR(Tanh::f(T(0.5)), 0.46211715726000975850, tolerance);
  // Phi(1), the normal distribution function
  EXPECT_NEAR(GeluErf::f(T(1)), 0.84134474606854294859, tolerance);
  EXPECT_NEAR(GeluTanh::f(T(1)), 0.84119199060827, 2e-7);
}

TYPED_TEST(Activations, StayFiniteAtTheExtremes) {
  using T = TypeParam;
  const T huge = static_cast<T>(kHuge);
  EXPECT_EQ(Sigmoid::f(huge), T(1));
  EXPECT_EQ(Sigmoid::f(-huge), T(0));
  EXPECT_EQ(Tanh::f(-huge), T(-1));
  EXPECT_EQ(GeluErf::f(huge), huge);
  EXPECT_EQ(GeluErf::f(-huge), T(0));
  EXPECT_EQ(GeluTanh::f(T(1e6)), T(1e6));
  EXPECT_EQ(GeluTanh::f(T(-1e6)), T(0));
  EXPECT_EQ(GeluErf::df(huge, T(1)), T(1));
  EXPECT_EQ(GeluErf::df(-huge, T(1)), T(0));
  EXPECT_EQ(GeluTanh::df(T(1e6), T(1)), T(1));
}

// A NaN must reach the loss, so no activation may remove it.
TYPED_TEST(Activations, PropagateNaN) {
  using T = TypeParam;
  const T nan = std::numeric_limits<T>::quiet_NaN();
  EXPECT_TRUE(std::isnan(Relu::f(nan)));
  EXPECT_TRUE(std::isnan(Relu::df(T(1), nan)));
  EXPECT_TRUE(std::isnan(Sigmoid::f(nan)));
  EXPECT_TRUE(std::isnan(Tanh::f(nan)));
  EXPECT_TRUE(std::isnan(GeluErf::f(nan)));
  EXPECT_TRUE(std::isnan(GeluTanh::f(nan)));
}

TYPED_TEST(Activations, ReluHasNoSlopeAtZero) {
  using T = TypeParam;
  EXPECT_EQ(Relu::df(T(0), T(5)), T(0));
  EXPECT_EQ(Relu::df(T(1), T(5)), T(5));
}

}  // namespace
}  // namespace trainyard::math
