// Compares the cpu image kernels with the reference loops, over irregular sizes and both layouts.
// Outputs start as NaN, to catch a kernel that does not write all cells.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "kernels/batch_norm.h"
#include "kernels/conv.h"
#include "kernels/cpu/conv_cuts.h"
#include "kernels/cpu/team.h"
#include "kernels/math/activations.h"
#include "kernels/math/philox.h"
#include "kernels/pool.h"

namespace trainyard::kernels {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

std::vector<float> random_values(int64_t count, uint32_t stream, float low = -1, float high = 1) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    const float u = math::uniform01<float>(math::philox_u32(7, stream, 0, i));
    values[i] = low + (high - low) * u;
  }
  return values;
}
std::vector<float> unwritten(int64_t count) {
  return std::vector<float>(static_cast<size_t>(count), kNaN);
}

// A sum of `terms` products of values in [-1, 1] has a standard deviation of sqrt(terms)/3, and its
// partial sums are rounded `terms` times by a relative 6e-8 at random. Two orders of summation
// differ by about 2e-8 * terms; the bound for the worst of many elements is 16 times that.
float tolerance(int64_t terms) { return 1e-6f + 3.2e-7f * static_cast<float>(terms); }

void expect_near(const std::vector<float>& actual, const std::vector<float>& expected, float bound,
                 const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], bound) << what << " at " << i;
  }
}

/// NaN equals NaN here.
void expect_same(const std::vector<float>& actual, const std::vector<float>& expected,
                 const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_TRUE(actual[i] == expected[i] || (std::isnan(actual[i]) && std::isnan(expected[i])))
        << what << " at " << i << ": " << actual[i] << ", expected " << expected[i];
  }
}

struct AlignedBytes {
  explicit AlignedBytes(int64_t bytes) : size((bytes + 64) / 64 * 64) {
    data = std::aligned_alloc(64, static_cast<size_t>(size));
    // simulates memory that another step has used
    std::fill_n(static_cast<float*>(data), size / 4, kNaN);
  }
  ~AlignedBytes() { std::free(data); }
  AlignedBytes(const AlignedBytes&) = delete;
  int64_t size;
  void* data;
};

ImageStrides strides(const ImageDims& d, bool channels_last) {
  return channels_last ? ImageStrides::channels_last(d) : ImageStrides::row_major(d);
}

std::string describe(const ImageDims& x, const Window& w, bool channels_last, int threads) {
  return "x [" + std::to_string(x.N) + ", " + std::to_string(x.C) + ", " + std::to_string(x.H) +
         ", " + std::to_string(x.W) + "] window " + std::to_string(w.R) + "x" +
         std::to_string(w.S) + " stride " + std::to_string(w.stride_h) + "," +
         std::to_string(w.stride_w) + (channels_last ? " channels-last" : " row-major") +
         " threads " + std::to_string(threads);
}

const std::vector<ConvDims>& conv_cases() {
  static const std::vector<ConvDims> cases = {
      {{1, 1, 1, 1}, 1, {1, 1}},
      {{2, 1, 28, 28}, 20, {5, 5}},
      {{3, 20, 12, 12}, 50, {5, 5}},
      {{2, 3, 9, 7}, 31, {3, 3, 1, 1, 1, 1, 1, 1}},
      {{1, 33, 8, 11}, 17, {3, 2, 2, 1, 1, 0, 0, 1}},
      {{5, 31, 6, 6}, 33, {1, 1}},
      {{2, 4, 10, 10}, 6, {3, 3, 2, 2, 2, 2, 2, 2}},
      {{1, 2, 5, 65}, 3, {5, 3, 1, 3, 0, 1, 0, 1}},
      {{2, 65, 4, 4}, 64, {3, 3, 1, 1, 1, 1, 1, 1}},
      // Convolution by columns (conv_columns.h): chunks with a remainder, padding on every side, a
      // window that contains only padding, strides.
      {{11, 20, 12, 12}, 50, {5, 5}},
      {{3, 10, 30, 31}, 9, {5, 5, 1, 1, 2, 2, 2, 2}},
      {{3, 11, 6, 5}, 9, {3, 3, 1, 1, 3, 4, 5, 3}},
      {{4, 10, 13, 11}, 21, {5, 5, 3, 2, 1, 4, 2, 0}},
      // Filters as wide as the image, and a dw of several chunks with a remainder.
      {{3, 1, 29, 24}, 10, {4, 24}},
      {{9, 67, 14, 14}, 2, {3, 3, 1, 1, 1, 1, 1, 1}},
      // Fewer channels than a vector has lanes, with strides, as in the shortcut of a narrow
      // ResNet.
      {{4, 4, 16, 16}, 8, {1, 1, 2, 2}},
      {{4, 3, 16, 16}, 12, {1, 1, 2, 2}},
      {{2, 5, 9, 8}, 7, {1, 1, 2, 1}},
      {{2, 12, 8, 8}, 16, {1, 1, 2, 2}},
      {{2, 6, 8, 8}, 8, {1, 1, 2, 2}, 2},
  };
  return cases;
}

std::vector<cpu::ConvAlgorithm> conv_algorithms(bool channels_last) {
  using cpu::ConvAlgorithm;
  if (!channels_last) return {ConvAlgorithm::kByShape};
  return {ConvAlgorithm::kByShape, ConvAlgorithm::kDirect, ConvAlgorithm::kColumns};
}

/// The inputs of a convolution in one layout, and the results of the reference loops.
struct ConvExpected {
  std::vector<float> x, dy, w, b;
  std::vector<float> y, y_without_bias, dx, dw, db;

  ConvExpected(const ConvDims& d, bool channels_last)
      : x(random_values(d.x.elements(), 1)),
        dy(random_values(d.y().elements(), 2)),
        w(random_values(d.weight_elements(), 3)),
        b(random_values(d.K, 4)),
        y(unwritten(d.y().elements())),
        y_without_bias(y),
        dx(unwritten(d.x.elements())),
        dw(unwritten(d.weight_elements())),
        db(unwritten(d.K)) {
    const ImageStrides xs = strides(d.x, channels_last), ys = strides(d.y(), channels_last);
    reference::conv_forward<float>(d, xs, x.data(), w.data(), b.data(), ys, y.data());
    reference::conv_forward<float>(d, xs, x.data(), w.data(), nullptr, ys, y_without_bias.data());
    reference::conv_backward_data<float>(d, ys, dy.data(), w.data(), xs, dx.data());
    reference::conv_backward_weights<float>(d, xs, x.data(), ys, dy.data(), dw.data(), db.data());
  }
};

void check_conv(const ConvDims& d, const cpu::ConvOptions& options, int threads,
                const ConvExpected& expected, const std::string& what) {
  const int64_t taps = d.window.R * d.window.S, outputs = d.y().N * d.y().H * d.y().W;
  cpu::Team team(threads);

  auto y = unwritten(d.y().elements());
  cpu::ConvForward forward(d, options, team);
  AlignedBytes forward_space(forward.workspace_bytes());
  forward.run(expected.x.data(), expected.w.data(), options.bias ? expected.b.data() : nullptr,
              y.data(), forward_space.data);
  expect_near(y, options.bias ? expected.y : expected.y_without_bias, tolerance(d.x.C * taps),
              "y, " + what);

  auto dx = unwritten(d.x.elements());
  cpu::ConvBackwardData data(d, options, team);
  AlignedBytes data_space(data.workspace_bytes());
  data.run(expected.dy.data(), expected.w.data(), dx.data(), data_space.data);
  expect_near(dx, expected.dx, tolerance(d.K * taps), "dx, " + what);

  auto dw = unwritten(d.weight_elements()), db = unwritten(d.K);
  cpu::ConvBackwardWeights weights(d, options, team);
  AlignedBytes weights_space(weights.workspace_bytes());
  weights.run(expected.x.data(), expected.dy.data(), dw.data(), options.bias ? db.data() : nullptr,
              weights_space.data);
  expect_near(dw, expected.dw, tolerance(outputs), "dw, " + what);
  if (options.bias) expect_near(db, expected.db, tolerance(outputs), "db, " + what);
}

TEST(ConvKernels, CpuMatchesTheReferenceLoops) {
  for (const ConvDims& d : conv_cases()) {
    for (const bool channels_last : {true, false}) {
      const ConvExpected expected(d, channels_last);
      for (const cpu::ConvAlgorithm algorithm : conv_algorithms(channels_last)) {
        for (const bool bias : {true, false}) {
          for (const int threads : {1, 2}) {
            check_conv(d, {channels_last, bias, algorithm}, threads, expected,
                       describe(d.x, d.window, channels_last, threads) + " algorithm " +
                           std::to_string(static_cast<int>(algorithm)));
          }
        }
      }
    }
  }
}

// With fewer images than threads, each thread computes a band of rows.
TEST(ConvKernels, BandsOfRowsMatchTheReferenceLoops) {
  const std::vector<ConvDims> cases = {
      {{1, 32, 28, 28}, 32, {3, 3, 1, 1, 1, 1, 1, 1}},
      {{1, 32, 27, 29}, 48, {3, 3, 2, 2, 1, 1, 1, 1}},
      {{2, 64, 14, 14}, 64, {3, 3, 1, 1, 1, 1, 1, 1}},
      {{1, 3, 64, 50}, 24, {7, 7, 2, 2, 3, 3, 3, 3}},
      {{1, 64, 28, 28}, 128, {1, 1, 2, 2}},
      {{1, 128, 15, 15}, 192, {1, 1, 2, 2}},
      {{1, 64, 28, 28}, 64, {1, 1}},
      {{3, 24, 20, 11}, 40, {5, 5, 3, 2, 1, 4, 2, 0}},
      {{1, 16, 40, 24}, 32, {3, 3, 1, 1, 2, 2, 2, 2, 2, 2}},
      {{1, 32, 24, 24}, 64, {3, 3, 1, 1, 1, 1, 1, 1}, 4},
      {{1, 64, 35, 35}, 64, {2, 2, 3, 3}},  // some rows are in no window
      {{1, 20, 30, 30}, 50, {5, 5}},
      {{1, 512, 7, 7}, 256, {3, 3, 1, 1, 1, 1, 1, 1}},
      {{1, 256, 4, 4}, 512, {3, 3, 1, 1, 1, 1, 1, 1}},
      {{1, 16, 9, 64}, 64, {5, 5, 1, 1, 4, 2, 4, 2}},  // one band covers both padding and image
      {{2, 1, 64, 64}, 64, {3, 64}},
  };
  for (const ConvDims& d : cases) {
    ASSERT_GE(d.flops(), 2'000'000);
    for (const bool channels_last : {true, false}) {
      const ConvExpected expected(d, channels_last);
      for (const int threads : {2, 3, 7}) {
        check_conv(d, {channels_last, true}, threads, expected,
                   describe(d.x, d.window, channels_last, threads));
        if (!channels_last) break;
        check_conv(d, {channels_last, false, cpu::ConvAlgorithm::kDirect}, threads, expected,
                   describe(d.x, d.window, channels_last, threads) + " direct");
      }
    }
  }
}

TEST(ConvCuts, BandsCoverEachRowOnce) {
  const ConvDims d{{2, 8, 29, 16}, 8, {3, 3, 2, 2, 1, 1, 1, 1}};
  EXPECT_TRUE(cpu::cut_rows_of_y(d, 2).empty()) << "an image for each thread";
  EXPECT_TRUE(cpu::cut_rows_of_x(d, 3).empty()) << "two bands for each image need four";
  for (const int threads : {4, 7, 100}) {
    const auto of_y = cpu::cut_rows_of_y(d, threads), of_x = cpu::cut_rows_of_x(d, threads);
    EXPECT_EQ(of_y.size(), threads == 100 ? 14U : threads == 4 ? 4U : 6U);
    ASSERT_EQ(of_x.size(), of_y.size());
    int64_t y_next = 0, x_next = 0;
    for (size_t i = 0; i < of_y.size(); ++i) {
      EXPECT_EQ(of_y[i].y_offset, y_next);
      y_next += of_y[i].dims.y().elements();
      EXPECT_EQ(of_x[i].x_offset, x_next);
      x_next += of_x[i].dims.x.elements();
    }
    EXPECT_EQ(y_next, d.y().elements());
    EXPECT_EQ(x_next, d.x.elements());
  }
}

// The bits must be the same in each run, whatever the workspace contains.
TEST(ConvKernels, SameThreadsGiveTheSameBits) {
  const ConvDims d{{8, 20, 12, 12}, 50, {5, 5}};
  const auto x = random_values(d.x.elements(), 1), dy = random_values(d.y().elements(), 2);
  std::vector<float> first;
  for (int repeat = 0; repeat < 3; ++repeat) {
    cpu::Team team(2);
    cpu::ConvBackwardWeights weights(d, {true, true}, team);
    AlignedBytes space(weights.workspace_bytes());
    auto dw = unwritten(d.weight_elements()), db = unwritten(d.K);
    weights.run(x.data(), dy.data(), dw.data(), db.data(), space.data);
    if (repeat == 0) first = dw;
    EXPECT_EQ(dw, first);
  }
}

std::vector<PoolDims> pool_cases() {
  return {
      {{1, 1, 2, 2}, {2, 2, 2, 2}},
      {{3, 20, 24, 24}, {2, 2, 2, 2}},
      {{2, 31, 7, 9}, {2, 2, 2, 2}},              // a row and a column are in no window
      {{2, 33, 8, 8}, {3, 3, 2, 2, 1, 1, 1, 1}},  // overlapping, padded
      {{1, 65, 6, 5}, {3, 2, 1, 1, 2, 1, 0, 0}},
      {{2, 1025, 3, 3}, {3, 3}},
      {{5, 3, 10, 10}, {2, 3, 3, 4}},  // gaps between windows
  };
}

TEST(PoolKernels, CpuMatchesTheReferenceLoops) {
  cpu::Team team(2);
  for (PoolDims d : pool_cases()) {
    for (const bool channels_last : {true, false}) {
      for (const bool include_pad : {true, false}) {
        d.count_include_pad = include_pad;
        const std::string what = describe(d.x, d.window, channels_last, 2);
        const ImageDims yd = d.y();
        const PoolStrides s{strides(d.x, channels_last), strides(yd, channels_last)};
        auto x = random_values(d.x.elements(), 1);
        for (size_t i = 0; i < x.size(); ++i) x[i] = std::round(4 * x[i]) / 4;  // many ties
        const auto dy = random_values(yd.elements(), 2);
        auto y = unwritten(yd.elements()), y_expected = y;
        auto dx = unwritten(d.x.elements()), dx_expected = dx;

        std::vector<uint8_t> winner(y.size(), 0xFF), winner_expected = winner;
        cpu::max_pool_forward(d, s, {.x = x.data(), .y = y.data()}, team);
        reference::max_pool_forward<float>(
            d, s, {.x = x.data(), .y = y_expected.data(), .winner = winner_expected.data()});
        expect_near(y, y_expected, 0, "max y, " + what);  // a maximum is exact
        std::ranges::fill(y, kNaN);
        cpu::max_pool_forward(d, s, {.x = x.data(), .y = y.data(), .winner = winner.data()}, team);
        expect_near(y, y_expected, 0, "max y beside its winner, " + what);
        EXPECT_EQ(winner, winner_expected) << what;
        reference::max_pool_backward<float>(
            d, s, {.x = x.data(), .dy = dy.data(), .dx = dx_expected.data()});
        cpu::max_pool_backward(d, s, {.x = x.data(), .dy = dy.data(), .dx = dx.data()}, team);
        expect_near(dx, dx_expected, 1e-6f, "max dx, " + what);
        auto by_winner = unwritten(d.x.elements());
        const MaxPoolGradOperands<float> from_winner{
            .winner = winner.data(), .dy = dy.data(), .dx = by_winner.data()};
        cpu::max_pool_backward(d, s, from_winner, team);
        EXPECT_EQ(by_winner, dx) << what;
        reference::max_pool_backward(d, s, from_winner);
        EXPECT_EQ(by_winner, dx_expected) << what;

        cpu::average_pool_forward(d, s, x.data(), y.data(), team);
        reference::average_pool_forward<float>(d, s, x.data(), y_expected.data());
        expect_near(y, y_expected, 1e-6f, "average y, " + what);
        cpu::average_pool_backward(d, s, dy.data(), dx.data(), team);
        reference::average_pool_backward<float>(d, s, dy.data(), dx_expected.data());
        expect_near(dx, dx_expected, 2e-6f, "average dx, " + what);

        auto g = unwritten(d.x.N * d.x.C), g_expected = g;
        cpu::global_average_pool_forward(d.x, s.x, x.data(), g.data(), team);
        reference::global_average_pool_forward<float>(d.x, s.x, x.data(), g_expected.data());
        expect_near(g, g_expected, 1e-6f, "global y, " + what);
        cpu::global_average_pool_backward(d.x, s.x, g.data(), dx.data(), team);
        reference::global_average_pool_backward<float>(d.x, s.x, g.data(), dx_expected.data());
        expect_near(dx, dx_expected, 1e-6f, "global dx, " + what);
      }
    }
  }
}

// A pool that includes ReLU equals a pool followed by ReLU: value, mask and gradient, with a NaN
// among the values.
TEST(PoolKernels, FusedReluOfAMaximumMatchesBothSteps) {
  cpu::Team team(2);
  for (PoolDims d : pool_cases()) {
    for (const bool channels_last : {true, false}) {
      const std::string what = describe(d.x, d.window, channels_last, 2);
      const PoolStrides s{strides(d.x, channels_last), strides(d.y(), channels_last)};
      auto x = random_values(d.x.elements(), 1);
      for (float& v : x) v = std::round(4 * v - 1) / 4;  // many ties, few values above 0
      x[x.size() / 2] = kNaN;
      const auto dy = random_values(d.y().elements(), 2);
      auto y = unwritten(d.y().elements()), dpool = y, y_of_both = y, y_of_reference = y;
      auto dx = unwritten(d.x.elements()), dx_of_both = dx, dx_of_reference = dx;
      std::vector<uint8_t> winner(y.size()), of_both(y.size()), of_reference(y.size());

      d.relu = false;
      cpu::max_pool_forward(d, s, {.x = x.data(), .y = y.data(), .winner = winner.data()}, team);
      for (size_t i = 0; i < y.size(); ++i) {
        y[i] = math::Relu::f(y[i]);
        dpool[i] = math::Relu::df(y[i], dy[i]);
      }
      cpu::max_pool_backward(d, s, {.winner = winner.data(), .dy = dpool.data(), .dx = dx.data()},
                             team);

      d.relu = true;
      cpu::max_pool_forward(d, s, {.x = x.data(), .y = y_of_both.data()}, team);
      expect_same(y_of_both, y, "y, " + what);
      std::ranges::fill(y_of_both, kNaN);
      cpu::max_pool_forward(d, s, {.x = x.data(), .y = y_of_both.data(), .winner = of_both.data()},
                            team);
      expect_same(y_of_both, y, "y beside its winner, " + what);
      cpu::max_pool_backward(
          d, s, {.winner = of_both.data(), .dy = dy.data(), .dx = dx_of_both.data()}, team);
      expect_same(dx_of_both, dx, "dx, " + what);
      reference::max_pool_forward<float>(
          d, s, {.x = x.data(), .y = y_of_reference.data(), .winner = of_reference.data()});
      expect_same(y_of_reference, y, "the reference's y, " + what);
      EXPECT_EQ(of_reference, of_both) << what;
      reference::max_pool_backward<float>(
          d, s, {.winner = of_both.data(), .dy = dy.data(), .dx = dx_of_reference.data()});
      expect_same(dx_of_reference, dx, "the reference's dx, " + what);
    }
  }
}

// A maximum must keep a NaN, so that the loss of a diverging job shows it.
TEST(PoolKernels, MaxKeepsNaN) {
  cpu::Team team(1);
  for (const PoolDims& d : {PoolDims{{1, 5, 4, 4}, {2, 2, 2, 2}}, PoolDims{{1, 5, 4, 4}, {3, 3}}}) {
    for (int64_t cell = 0; cell < 16; ++cell) {
      const PoolStrides s{ImageStrides::channels_last(d.x), ImageStrides::channels_last(d.y())};
      auto x = random_values(d.x.elements(), 1);
      for (int64_t c = 0; c < 5; ++c) x[static_cast<size_t>(cell * 5 + c)] = kNaN;
      auto y = unwritten(d.y().elements()), expected = y;
      std::vector<uint8_t> winner(y.size(), 0xFF), winner_expected = winner;
      cpu::max_pool_forward(d, s, {.x = x.data(), .y = y.data(), .winner = winner.data()}, team);
      reference::max_pool_forward<float>(
          d, s, {.x = x.data(), .y = expected.data(), .winner = winner_expected.data()});
      EXPECT_EQ(winner, winner_expected) << "cell " << cell;
      bool any = false;
      for (size_t i = 0; i < y.size(); ++i) {
        EXPECT_EQ(std::isnan(y[i]), std::isnan(expected[i])) << "cell " << cell << " at " << i;
        any = any || std::isnan(y[i]);
      }
      EXPECT_TRUE(any);
      auto dx = unwritten(d.x.elements()), dx_expected = dx;
      const auto dy = random_values(d.y().elements(), 2);
      cpu::max_pool_backward(d, s, {.x = x.data(), .dy = dy.data(), .dx = dx.data()}, team);
      reference::max_pool_backward<float>(
          d, s, {.x = x.data(), .dy = dy.data(), .dx = dx_expected.data()});
      expect_near(dx, dx_expected, 1e-6f, "dx with NaN in cell " + std::to_string(cell));
    }
  }
}

TEST(BatchNormKernels, CpuMatchesTheReferenceInDouble) {
  const ImageDims cases[] = {{2, 1, 1, 1},  {31, 33, 1, 1},  {64, 1025, 1, 1},
                             {3, 31, 7, 5}, {2, 20, 24, 24}, {4, 64, 33, 31}};
  for (const ImageDims& x_dims : cases) {
    for (const bool channels_last : {true, false}) {
      for (const int threads : {1, 2}) {
        const BatchNormDims d{x_dims, 1e-5, 0.9};
        cpu::Team team(threads);
        const std::string what = describe(x_dims, {1, 1}, channels_last, threads);
        const ImageStrides s = strides(x_dims, channels_last);
        const int64_t count = x_dims.elements(), C = x_dims.C;
        const auto x = random_values(count, 1, 9, 11), dy = random_values(count, 2);
        const auto scale = random_values(C, 3, 0.5f, 2), b = random_values(C, 4);
        auto running_mean = random_values(C, 5), running_var = random_values(C, 6, 0.5f, 2);
        const auto wide = [](const std::vector<float>& v) {
          return std::vector<double>(v.begin(), v.end());
        };
        const auto narrow = [](const std::vector<double>& v) {
          return std::vector<float>(v.begin(), v.end());
        };
        auto rm = wide(running_mean), rv = wide(running_var);
        const auto zx = wide(x), zdy = wide(dy), zscale = wide(scale), zb = wide(b);
        std::vector<double> zy(zx.size()), zmean(zb.size()), zinv(zb.size()), zdx(zx.size()),
            zdscale(zb.size()), zdb(zb.size());
        reference::batch_norm_training<double>(d, s,
                                               {.x = zx.data(),
                                                .scale = zscale.data(),
                                                .b = zb.data(),
                                                .running_mean = rm.data(),
                                                .running_var = rv.data(),
                                                .y = zy.data(),
                                                .mean = zmean.data(),
                                                .inv_std = zinv.data()});

        AlignedBytes space(cpu::batch_norm_workspace_bytes(d, s));
        const cpu::Run run(team, space.data);
        auto y = unwritten(count), dx = y;
        auto mean = unwritten(C), inv = mean, dscale = mean, db = mean;
        cpu::batch_norm_training(d, s,
                                 {.x = x.data(),
                                  .scale = scale.data(),
                                  .b = b.data(),
                                  .running_mean = running_mean.data(),
                                  .running_var = running_var.data(),
                                  .y = y.data(),
                                  .mean = mean.data(),
                                  .inv_std = inv.data()},
                                 run);
        // x is near 10 with a rounding error of 1e-6, which is divided by a deviation of 0.6 and
        // added to errors of sums.
        // the variance of 2 values can be tiny
        const float bound = C > 1 || x_dims.N > 2 ? 2e-4f : 2e-2f;
        expect_near(mean, narrow(zmean), 1e-4f, "mean, " + what);
        expect_near(running_mean, narrow(rm), 1e-5f, "running_mean, " + what);
        expect_near(running_var, narrow(rv), 1e-4f, "running_var, " + what);
        expect_near(y, narrow(zy), bound, "y, " + what);

        // Backward starts from equal saved values, so that only its own rounding errors are
        // compared.
        const auto zm = wide(mean), zi = wide(inv);
        reference::batch_norm_backward<double>(d, s,
                                               {.x = zx.data(),
                                                .dy = zdy.data(),
                                                .scale = zscale.data(),
                                                .mean = zm.data(),
                                                .inv_std = zi.data(),
                                                .dx = zdx.data(),
                                                .dscale = zdscale.data(),
                                                .db = zdb.data()});
        cpu::batch_norm_backward(d, s,
                                 {.x = x.data(),
                                  .dy = dy.data(),
                                  .scale = scale.data(),
                                  .mean = mean.data(),
                                  .inv_std = inv.data(),
                                  .dx = dx.data(),
                                  .dscale = dscale.data(),
                                  .db = db.data()},
                                 run);
        const float sums = 2e-6f * static_cast<float>(d.values_per_channel()) + 1e-3f;
        expect_near(dx, narrow(zdx), 1e-3f, "dx, " + what);
        expect_near(dscale, narrow(zdscale), sums, "dscale, " + what);
        expect_near(db, narrow(zdb), sums, "db, " + what);

        reference::batch_norm_inference<double>(d, s,
                                                {.x = zx.data(),
                                                 .scale = zscale.data(),
                                                 .b = zb.data(),
                                                 .running_mean = rm.data(),
                                                 .running_var = rv.data(),
                                                 .y = zy.data()});
        cpu::batch_norm_inference(d, s,
                                  {.x = x.data(),
                                   .scale = scale.data(),
                                   .b = b.data(),
                                   .running_mean = running_mean.data(),
                                   .running_var = running_var.data(),
                                   .y = y.data()},
                                  run);
        expect_near(y, narrow(zy), 2e-4f, "inference y, " + what);
      }
    }
  }
}

// The blocks depend only on the shape, so any number of threads gives the same bits.
TEST(BatchNormKernels, ThreadCountChangesNoBit) {
  const BatchNormDims d{{16, 20, 24, 24}, 1e-5, 0.9};
  const ImageStrides s = ImageStrides::channels_last(d.x);
  const auto x = random_values(d.x.elements(), 1), scale = random_values(20, 2),
             b = random_values(20, 3);
  std::vector<float> first;
  for (const int threads : {1, 2, 3, 7}) {
    cpu::Team team(threads);
    std::vector<float> rm(20), rv(20), mean(20), inv(20);
    auto y = unwritten(d.x.elements());
    AlignedBytes space(cpu::batch_norm_workspace_bytes(d, s));
    cpu::batch_norm_training(d, s,
                             {.x = x.data(),
                              .scale = scale.data(),
                              .b = b.data(),
                              .running_mean = rm.data(),
                              .running_var = rv.data(),
                              .y = y.data(),
                              .mean = mean.data(),
                              .inv_std = inv.data()},
                             {team, space.data});
    if (threads == 1) first = y;
    EXPECT_EQ(y, first) << threads << " threads";
  }
}

}  // namespace
}  // namespace trainyard::kernels
