// Compares losses and updates of the reference kernels with values computed by hand.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/optimizer.h"
#include "kernels/pointwise_loss.h"
#include "kernels/softmax_xent.h"

namespace trainyard::kernels {
namespace {

TEST(SoftmaxXent, LossIsFiniteForHugeLogits) {
  const std::vector<float> z = {3e38f, 0, -3e38f, -3e38f, 88, 89};
  const std::vector<int32_t> label = {0, 2};
  std::vector<float> p(6);
  float loss = std::numeric_limits<float>::quiet_NaN();
  reference::softmax_xent_forward<float, int32_t>(
      {1, 2}, {.z = z.data(), .target = label.data(), .loss = &loss, .prob = p.data()});
  EXPECT_EQ(loss, 0.0f);
  EXPECT_EQ(p[0], 1.0f);
  reference::softmax_xent_forward<float, int32_t>(
      {1, 2}, {.z = z.data() + 4, .target = label.data(), .loss = &loss, .prob = p.data()});
  EXPECT_NEAR(loss, std::log1p(std::exp(1.0)), 1e-6);
}

// A loss computed from the rounded probability would be log(0) here.
TEST(SoftmaxXent, LossKeepsItsDigitsWhereTheProbabilityIsZero) {
  const std::vector<float> z = {0, 200};
  const int32_t label = 0;
  std::vector<float> p(2);
  float loss = 0;
  reference::softmax_xent_forward<float, int32_t>(
      {1, 2}, {.z = z.data(), .target = &label, .loss = &loss, .prob = p.data()});
  EXPECT_EQ(p[0], 0.0f);
  EXPECT_EQ(loss, 200.0f);
}

TEST(SoftmaxXent, EqualLogitsGiveLogOfTheClasses) {
  const std::vector<double> z(30, 0.25);
  const std::vector<int32_t> label = {0, 4, 9};
  std::vector<double> p(30), dz(30);
  double loss = 0;
  reference::softmax_xent_forward<double, int32_t>(
      {3, 10}, {.z = z.data(), .target = label.data(), .loss = &loss, .prob = p.data()});
  EXPECT_NEAR(loss, std::log(10.0), 1e-15);
  const double dloss = 2;
  reference::softmax_xent_backward<double, int32_t>(
      {3, 10}, {.prob = p.data(), .target = label.data(), .dloss = &dloss, .dz = dz.data()});
  EXPECT_NEAR(dz[0], 2 * (0.1 - 1) / 3, 1e-15);
  EXPECT_NEAR(dz[1], 2 * 0.1 / 3, 1e-15);
}

TEST(SoftmaxXent, NaNInALogitReachesTheLoss) {
  const std::vector<float> z = {0, std::numeric_limits<float>::quiet_NaN(), 1};
  const int32_t label = 0;
  std::vector<float> p(3);
  float loss = 0;
  reference::softmax_xent_forward<float, int32_t>(
      {1, 3}, {.z = z.data(), .target = &label, .loss = &loss, .prob = p.data()});
  EXPECT_TRUE(std::isnan(loss));
}

// If no row of a batch counts, the mean divides by 0: loss and gradient must be 0, not NaN.
TEST(SoftmaxXent, ABatchWithOnlyIgnoredRowsHasNoGradient) {
  const std::vector<double> z = {1, 2, 3, 4};
  const std::vector<int32_t> label = {1, 1};
  for (const bool weights : {false, true}) {
    SoftmaxXentParams params{2, 2};
    if (weights) {
      params.weights = {3, 0};
    } else {
      params.ignored = 1;
    }
    std::vector<double> p(4, 9), dz(4, 9);
    double loss = 9;
    const double dloss = 1;
    reference::softmax_xent_forward<double, int32_t>(
        params, {.z = z.data(), .target = label.data(), .loss = &loss, .prob = p.data()});
    reference::softmax_xent_backward<double, int32_t>(
        params, {.prob = p.data(), .target = label.data(), .dloss = &dloss, .dz = dz.data()});
    EXPECT_EQ(loss, 0);
    EXPECT_EQ(dz, std::vector<double>(4, 0));
    EXPECT_NEAR(p[1], 1 / (1 + std::exp(-1)), 1e-15);  // the probabilities are still computed
  }
}

// If the entropy is not subtracted, or misses a class, the divergence is not 0.
TEST(SoftmaxXent, TheDivergenceOfTheSmoothedLabelsFromThemselvesIsZero) {
  SoftmaxXentParams params{1, 5, 0.3};
  params.divergence = true;
  std::vector<double> z(5, std::log(0.06)), p(5);
  z[2] = std::log(0.76);
  const int32_t label = 2;
  double loss = 9;
  reference::softmax_xent_forward<double, int32_t>(
      params, {.z = z.data(), .target = &label, .loss = &loss, .prob = p.data()});
  EXPECT_NEAR(loss, 0, 1e-15);
  params.divergence = false;
  reference::softmax_xent_forward<double, int32_t>(
      params, {.z = z.data(), .target = &label, .loss = &loss, .prob = p.data()});
  EXPECT_NEAR(loss, -4 * 0.06 * std::log(0.06) - 0.76 * std::log(0.76), 1e-15);
}

TEST(PointwiseLoss, IsTheMeanOverAllElements) {
  const math::MeanSquaredError f;
  const std::vector<double> y = {1, 2, 3, 4}, t = {1, 0, 0, 0};
  double loss = 0;
  reference::pointwise_loss(
      f, 4, PointwiseLossOperands<double, double>{.y = y.data(), .t = t.data(), .loss = &loss});
  EXPECT_DOUBLE_EQ(loss, (4 + 9 + 16) / 4.0);
  std::vector<double> dy(4);
  const double dloss = 3;
  reference::pointwise_loss_grad(
      f, 4,
      PointwiseLossGradOperands<double, double>{
          .y = y.data(), .t = t.data(), .dloss = &dloss, .dy = dy.data()});
  EXPECT_EQ(dy, (std::vector<double>{0, 3, 4.5, 6}));
}

TEST(PointwiseLoss, HuberIsSquareInsideAndStraightOutside) {
  const math::HuberLoss f{2};
  EXPECT_EQ(f.f(1.0, 0.5), 0.125);
  EXPECT_EQ(f.f(2.0, 0.0), 2);  // both formulas agree at delta
  EXPECT_EQ(f.f(5.0, 0.0), 2 * (5 - 1));
  EXPECT_EQ(f.f(-5.0, 0.0), 2 * (5 - 1));
  EXPECT_EQ(f.df(1.0, 0.5), 0.5);
  EXPECT_EQ(f.df(5.0, 0.0), 2);
  EXPECT_EQ(f.df(-5.0, 0.0), -2);
}

TEST(PointwiseLoss, AbsoluteErrorHasNoSlopeAtTheTarget) {
  const math::MeanAbsoluteError f;
  EXPECT_EQ(f.f(1.0, 3.0), 2);
  EXPECT_EQ(f.df(1.0, 3.0), -1);
  EXPECT_EQ(f.df(3.0, 1.0), 1);
  EXPECT_EQ(f.df(3.0, 3.0), 0);
}

// From a rounded probability these would be log(0), or e^500.
TEST(PointwiseLoss, BinaryCrossEntropyKeepsItsDigitsFarOut) {
  const math::BinaryCrossEntropyLoss f, weighted{3};
  EXPECT_EQ(f.f(-500.0f, 1.0f), 500.0f);
  EXPECT_EQ(f.f(500.0f, 0.0f), 500.0f);
  EXPECT_EQ(f.f(500.0f, 1.0f), 0.0f);
  EXPECT_EQ(f.df(-500.0f, 1.0f), -1.0f);
  EXPECT_EQ(f.df(500.0f, 0.0f), 1.0f);
  EXPECT_NEAR(f.f(0.0, 1.0), std::log(2.0), 1e-15);
  EXPECT_NEAR(weighted.f(0.5, 1.0), 3 * f.f(0.5, 1.0), 1e-15);
  EXPECT_EQ(weighted.f(0.5, 0.0), f.f(0.5, 0.0));  // the weight applies only to label 1
}

TEST(PointwiseLoss, NaNReachesLossAndGradient) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
#define TRAINYARD_EXPECT_NAN(F)                   \
  EXPECT_TRUE(std::isnan(math::F{}.f(nan, 0.0))); \
  EXPECT_TRUE(std::isnan(math::F{}.df(nan, 0.0)));
  TRAINYARD_FOR_EACH_POINTWISE_LOSS(TRAINYARD_EXPECT_NAN)
#undef TRAINYARD_EXPECT_NAN
}

// Computed naively in float, 1 - 0.999^1 has only four digits, which would distort Adam's first
// steps.
TEST(Adam, FirstStepMovesByTheLearningRateWhateverTheGradient) {
  for (const float gradient : {1e-4f, 1.0f, -1e4f}) {
    float p = 1, m = 0, v = 0;
    const float learning_rate = 0.001f;
    const int64_t step = 0;
    reference::adam<float>({1, 0.9, 0.999, 1e-8, 0, false}, {.g = &gradient,
                                                             .learning_rate = &learning_rate,
                                                             .step = &step,
                                                             .p = &p,
                                                             .m = &m,
                                                             .v = &v});
    EXPECT_NEAR(p, gradient > 0 ? 0.999f : 1.001f, 2e-7);
  }
}

TEST(Adam, StaysFiniteAfterAnyNumberOfSteps) {
  float p = 1, m = 0, v = 0;
  const float gradient = 0, learning_rate = 0.1f;
  for (const int64_t step : {int64_t{0}, int64_t{1} << 40}) {
    reference::adam<float>({1, 0.9, 0.999, 1e-8, 0, true}, {.g = &gradient,
                                                            .learning_rate = &learning_rate,
                                                            .step = &step,
                                                            .p = &p,
                                                            .m = &m,
                                                            .v = &v});
    EXPECT_EQ(p, 1.0f);
  }
}

TEST(LossScale, FallsAtAnOverflowAndGrowsAfterAnIntervalWithoutOne) {
  const math::LossScaling scaling{.growth = 2, .backoff = 0.5, .interval = 3};
  float scale = 64;
  int64_t good = 0;
  const auto step = [&](float norm) { return math::adapt_loss_scale(scaling, norm, scale, good); };
  EXPECT_TRUE(step(1));
  EXPECT_TRUE(step(1));
  EXPECT_FALSE(step(std::numeric_limits<float>::infinity()));
  EXPECT_EQ(scale, 32);
  EXPECT_FALSE(step(std::numeric_limits<float>::quiet_NaN()));
  EXPECT_EQ(scale, 16);
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(step(1));
  EXPECT_EQ(scale, 16) << "what was counted before an overflow counts no more";
  EXPECT_TRUE(step(1));
  EXPECT_EQ(scale, 32);
  scale = std::numeric_limits<float>::max();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(step(1));
  EXPECT_EQ(scale, std::numeric_limits<float>::max()) << "no further than a float goes";
}

}  // namespace
}  // namespace trainyard::kernels
