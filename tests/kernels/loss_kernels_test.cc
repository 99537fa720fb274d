// Losses and updates of the reference kernels against values worked out by hand.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/mse.h"
#include "kernels/optimizer.h"
#include "kernels/softmax_xent.h"

namespace trainyard::kernels {
namespace {

TEST(SoftmaxXent, LossIsFiniteForHugeLogits) {
  const std::vector<float> z = {3e38f, 0, -3e38f, -3e38f, 88, 89};
  const std::vector<int32_t> label = {0, 2};
  std::vector<float> p(6);
  float loss = std::numeric_limits<float>::quiet_NaN();
  reference::softmax_xent_forward<float>({1, 2}, z.data(), label.data(), &loss, p.data());
  EXPECT_EQ(loss, 0.0f);
  EXPECT_EQ(p[0], 1.0f);
  reference::softmax_xent_forward<float>({1, 2}, z.data() + 4, label.data(), &loss, p.data());
  EXPECT_NEAR(loss, std::log1p(std::exp(1.0)), 1e-6);
}

// A loss taken from a rounded probability would be log(0) here.
TEST(SoftmaxXent, LossKeepsItsDigitsWhereTheProbabilityIsZero) {
  const std::vector<float> z = {0, 200};
  const int32_t label = 0;
  std::vector<float> p(2);
  float loss = 0;
  reference::softmax_xent_forward<float>({1, 2}, z.data(), &label, &loss, p.data());
  EXPECT_EQ(p[0], 0.0f);
  EXPECT_EQ(loss, 200.0f);
}

TEST(SoftmaxXent, EqualLogitsGiveLogOfTheClasses) {
  const std::vector<double> z(30, 0.25);
  const std::vector<int32_t> label = {0, 4, 9};
  std::vector<double> p(30), dz(30);
  double loss = 0;
  reference::softmax_xent_forward<double>({3, 10}, z.data(), label.data(), &loss, p.data());
  EXPECT_NEAR(loss, std::log(10.0), 1e-15);
  const double dloss = 2;
  reference::softmax_xent_backward<double>({3, 10}, p.data(), label.data(), &dloss, dz.data());
  EXPECT_NEAR(dz[0], 2 * (0.1 - 1) / 3, 1e-15);
  EXPECT_NEAR(dz[1], 2 * 0.1 / 3, 1e-15);
}

TEST(SoftmaxXent, NaNInALogitReachesTheLoss) {
  const std::vector<float> z = {0, std::numeric_limits<float>::quiet_NaN(), 1};
  const int32_t label = 0;
  std::vector<float> p(3);
  float loss = 0;
  reference::softmax_xent_forward<float>({1, 3}, z.data(), &label, &loss, p.data());
  EXPECT_TRUE(std::isnan(loss));
}

TEST(Mse, IsTheMeanOverAllElements) {
  const std::vector<double> y = {1, 2, 3, 4}, t = {1, 0, 0, 0};
  double loss = 0;
  reference::mse_forward<double>(4, y.data(), t.data(), &loss);
  EXPECT_DOUBLE_EQ(loss, (4 + 9 + 16) / 4.0);
  std::vector<double> dy(4);
  const double dloss = 3;
  reference::mse_backward<double>(4, y.data(), t.data(), &dloss, dy.data());
  EXPECT_EQ(dy, (std::vector<double>{0, 3, 4.5, 6}));
}

// In float, 1 - 0.999^1 computed naively keeps four digits; the first steps of Adam would be off.
TEST(Adam, FirstStepMovesByTheLearningRateWhateverTheGradient) {
  for (const float gradient : {1e-4f, 1.0f, -1e4f}) {
    float p = 1, m = 0, v = 0;
    const float learning_rate = 0.001f;
    const int64_t step = 0;
    reference::adam<float>({1, 0.9, 0.999, 1e-8, 0, false}, &gradient, &learning_rate, &step, &p,
                           &m, &v);
    EXPECT_NEAR(p, gradient > 0 ? 0.999f : 1.001f, 2e-7);
  }
}

TEST(Adam, StaysFiniteAfterAnyNumberOfSteps) {
  float p = 1, m = 0, v = 0;
  const float gradient = 0, learning_rate = 0.1f;
  for (const int64_t step : {int64_t{0}, int64_t{1} << 40}) {
    reference::adam<float>({1, 0.9, 0.999, 1e-8, 0, true}, &gradient, &learning_rate, &step, &p, &m,
                           &v);
    EXPECT_EQ(p, 1.0f);
  }
}

}  // namespace
}  // namespace trainyard::kernels
