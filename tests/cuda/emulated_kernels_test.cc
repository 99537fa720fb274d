// Catches: a CUDA kernel that is right only for small shapes. The graphs of emulated_parity_test.cc
// are small, because other tests differentiate them numerically. Here the shapes need several
// blocks, slices of a sum, tiles with edges, and tables of tensors that take two launches.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/alignment.h"
#include "kernels/arithmetic.h"
#include "kernels/batch_norm.h"
#include "kernels/cuda/bias_relu.h"
#include "kernels/cuda/emulator.h"
#include "kernels/cuda/walk.h"
#include "kernels/distinct_rows.h"
#include "kernels/gradient.h"
#include "kernels/group_norm.h"
#include "kernels/math/philox.h"
#include "kernels/movement.h"
#include "kernels/optimizer.h"
#include "kernels/pool.h"
#include "kernels/reduce.h"
#include "kernels/softmax_xent.h"
#include "src/runtime/cuda/backend.h"
#include "src/runtime/cuda/conv_algorithms.h"
#include "tests/cuda/aligned_bytes.h"
#include "tests/cuda/emulated_device.h"
#include "tests/cuda/fake_cuda.h"
#include "tests/support/graph_cases.h"
#include "tests/support/run_case.h"

namespace trainyard::kernels {
namespace {

using cuda::In;
using cuda::Out;
using testing::stream;
using testing::wide;

/// Distinct pseudo-random values in [-1, 1), scaled and shifted.
std::vector<float> values(int64_t count, uint64_t seed, double offset = 0, double scale = 1) {
  std::vector<float> v(static_cast<size_t>(count));
  for (size_t i = 0; i < v.size(); ++i) {
    const double u = math::philox_u32(seed, 0, 7, i) / 4294967296.0;
    v[i] = static_cast<float>(offset + scale * (2 * u - 1));
  }
  return v;
}
std::vector<float> nans(int64_t count) {
  return std::vector<float>(static_cast<size_t>(count), std::nanf(""));
}
In in(const std::vector<float>& v) { return {v.data()}; }
Out out(std::vector<float>& v) { return {v.data()}; }

void expect_near(const std::vector<float>& got, const std::vector<double>& expected,
                 double relative_max = 2e-5) {
  ASSERT_EQ(got.size(), expected.size());
  double scale = 1e-6;
  for (const double v : expected) scale = std::max(scale, std::abs(v));
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_LE(std::abs(got[i] - expected[i]), relative_max * scale) << i;
  }
}

TEST(EmulatedKernels, DivisorsDivide) {
  for (const int64_t d : {1,         2,    3,     4,     5,       6,       7,
                          9,         10,   31,    32,    33,      100,     641,
                          1000,      4097, 65535, 65537, 1000003, 1 << 30, (1 << 30) + 1,
                          2147483647}) {
    const cuda::Divisor divisor(d);
    for (const int64_t q : {int64_t{0}, int64_t{1}, int64_t{2}, int64_t{77}, int64_t{123456},
                            int64_t{2147483647} / d, int64_t{1} << 40}) {
      for (const int64_t r : {int64_t{-1}, int64_t{0}, d / 2, d - 1}) {
        const int64_t n = q * d + r;
        if (n < 0) continue;
        ASSERT_EQ(divisor.quotient(n), n / d) << n << " by " << d;
        ASSERT_EQ(divisor.remainder(n), n % d) << n << " by " << d;
      }
    }
  }
  EXPECT_EQ(cuda::Divisor(int64_t{3} << 31).quotient(int64_t{10} << 31), 3);
}

TEST(EmulatedKernels, CopiesTransposeByTiles) {
  struct Case {
    int64_t outer, rows, columns;
  };
  for (const Case c : {Case{1, 33, 65}, Case{3, 8, 100}, Case{2, 100, 8}, Case{1, 64, 32},
                       Case{5, 7, 40}, Case{1, 1, 50}}) {
    const int64_t count = c.outer * c.rows * c.columns;
    Box<2> box;  // written as [outer, rows, columns], read as [outer, columns, rows]
    box.append(c.outer, {c.rows * c.columns, c.rows * c.columns});
    box.append(c.rows, {1, c.columns});
    box.append(c.columns, {c.rows, 1});
    const std::vector<float> x = values(count, 1);
    std::vector<float> y = nans(count), expected = nans(count);
    reference::copy(box, x.data(), expected.data());
    cuda::copy(box, in(x), out(y), stream());
    EXPECT_EQ(y, expected) << c.outer << " " << c.rows << " " << c.columns;
    y = nans(count);
    cuda::scale(box, -2, in(x), out(y), stream());
    for (size_t i = 0; i < y.size(); ++i) ASSERT_EQ(y[i], -2 * expected[i]);
    cuda::zero(box, out(y), stream());
    EXPECT_EQ(y, std::vector<float>(y.size(), 0.0f));
  }
}

// Reductions over rows, columns and both; few and many results; lengths that are and are not
// multiples of four.
TEST(EmulatedKernels, ReductionsOfAllShapes) {
  struct Case {
    int64_t a, b, c;  // x has the shape [a, b, c]
    bool ra, rb, rc;  // which of a, b and c are reduced
  };
  for (const Case s : {Case{1, 1, 20000, false, false, true}, Case{1, 1, 9999, false, false, true},
                       Case{40, 1, 500, false, false, true}, Case{1, 900, 40, false, true, false},
                       Case{1, 3000, 3, false, true, false}, Case{2, 300, 33, false, true, false},
                       Case{60, 4, 50, true, false, true}, Case{60, 50, 4, true, false, true},
                       Case{3000, 1, 3, false, false, true}, Case{7, 11, 13, true, true, true},
                       Case{1, 40, 300, false, true, false}}) {
    ReduceParams p;
    int64_t y_stride = 1, x_stride = 1;
    struct Axis {
      int64_t size, x, y;
    };
    std::vector<Axis> axes;
    for (const auto& [size, reduced] : {std::pair{s.c, s.rc}, {s.b, s.rb}, {s.a, s.ra}}) {
      axes.insert(axes.begin(), {size, x_stride, reduced ? 0 : y_stride});
      x_stride *= size;
      if (!reduced) y_stride *= size;
    }
    for (const Axis& axis : axes) {
      if (axis.y == 0) {
        p.reduced.append(axis.size, {axis.x});
      } else {
        p.kept.append(axis.size, {axis.x, axis.y});
      }
    }
    const std::vector<float> x = values(x_stride, 2);
    for (const Reduction how :
         {Reduction::kSum, Reduction::kL2, Reduction::kMin, Reduction::kMax}) {
      SCOPED_TRACE(std::to_string(s.a) + "x" + std::to_string(s.b) + "x" + std::to_string(s.c) +
                   " how " + std::to_string(static_cast<int>(how)));
      p.how = how;
      p.factor = how == Reduction::kSum ? 0.5 : 1;
      std::vector<float> y = nans(y_stride), dx = nans(x_stride);
      auto workspace = testing::aligned_bytes(cuda::reduce_workspace_bytes(p));
      cuda::reduce(p, in(x), out(y), {stream(), workspace.data()});
      const std::vector<double> wide_x = wide(x);
      std::vector<double> wide_y(y.size()), wide_dx(dx.size());
      reference::reduce(p, wide_x.data(), wide_y.data());
      expect_near(y, wide_y);
      if (how == Reduction::kSum) continue;
      const std::vector<float> dy = values(y_stride, 3);
      const std::vector<double> wide_dy = wide(dy);
      workspace = testing::aligned_bytes(cuda::reduce_grad_workspace_bytes(p));
      cuda::reduce_grad(p, in(x), in(y), in(dy), out(dx), {stream(), workspace.data()});
      reference::reduce_grad(p, wide_x.data(), wide_y.data(), wide_dy.data(), wide_dx.data());
      expect_near(dx, wide_dx);
    }
  }
}

TEST(EmulatedKernels, ReductionsPassNanOn) {
  for (const Reduction how : {Reduction::kSum, Reduction::kL2, Reduction::kMin, Reduction::kMax}) {
    ReduceParams p;
    p.how = how;
    p.reduced.append(5000, {1});
    std::vector<float> x = values(5000, 4), y = {0};
    x[4321] = std::nanf("");
    auto workspace = testing::aligned_bytes(cuda::reduce_workspace_bytes(p));
    cuda::reduce(p, in(x), out(y), {stream(), workspace.data()});
    EXPECT_TRUE(std::isnan(y[0])) << static_cast<int>(how);
  }
}

struct Norms {
  ImageDims d;
  bool channels_last;
  ImageStrides strides() const {
    return channels_last ? ImageStrides::channels_last(d) : ImageStrides::row_major(d);
  }
};
std::vector<Norms> norms() {
  std::vector<Norms> result;
  for (const bool channels_last : {true, false}) {
    for (const ImageDims d :
         {ImageDims{4, 8, 9, 11}, {3, 5, 20, 21}, {40, 132, 1, 1}, {2, 3, 64, 64}}) {
      result.push_back({d, channels_last});
    }
  }
  return result;
}

// The mean is a thousand times the deviation: sums of squares in float would lose all digits of the
// variance.
TEST(EmulatedKernels, BatchNormalizationOfLargeMeans) {
  for (const Norms& n : norms()) {
    for (const double mean_of_x : {0.0, 1000.0}) {
      SCOPED_TRACE(std::to_string(n.d.C) + (n.channels_last ? " last" : " first"));
      const BatchNormDims d{n.d};
      const ImageStrides s = n.strides();
      const auto count = n.d.elements();
      const auto C = static_cast<size_t>(n.d.C);
      const std::vector<float> x = values(count, 5, mean_of_x), dy = values(count, 6);
      const std::vector<float> scale = values(n.d.C, 7, 1.5, 0.4), b = values(n.d.C, 8);
      const std::vector<float> residual = values(count, 9);
      std::vector<float> running_mean(C, 0.5f), running_var(C, 2.0f),
          y = nans(count), mean = nans(n.d.C), inv_std = nans(n.d.C), dx = nans(count),
          dscale = nans(n.d.C), db = nans(n.d.C), g = nans(count);
      auto workspace = testing::aligned_bytes(cuda::batch_norm_workspace_bytes(d, s));
      cuda::batch_norm_training(d, s,
                                {.x = in(x),
                                 .scale = scale.data(),
                                 .b = b.data(),
                                 .running_mean = running_mean.data(),
                                 .running_var = running_var.data(),
                                 .residual = in(residual),
                                 .relu = true,
                                 .y = out(y),
                                 .mean = mean.data(),
                                 .inv_std = inv_std.data()},
                                {stream(), workspace.data()});
      const std::vector<double> wx = wide(x), wdy = wide(dy), wscale = wide(scale), wb = wide(b),
                                wr = wide(residual);
      std::vector<double> rm(C, 0.5), rv(C, 2.0), wy(x.size()), wmean(C), winv(C), wdx(x.size()),
          wdscale(C), wdb(C), wg(x.size());
      reference::batch_norm_training<double>(d, s,
                                             {.x = wx.data(),
                                              .scale = wscale.data(),
                                              .b = wb.data(),
                                              .running_mean = rm.data(),
                                              .running_var = rv.data(),
                                              .residual = wr.data(),
                                              .relu = true,
                                              .y = wy.data(),
                                              .mean = wmean.data(),
                                              .inv_std = winv.data()});
      // The mean itself is only as accurate as a float of its size.
      const double loose = mean_of_x == 0 ? 2e-5 : 4e-4;
      expect_near(mean, wmean);
      expect_near(inv_std, winv, loose);
      expect_near(running_mean, rm);
      expect_near(running_var, rv, loose);
      expect_near(y, wy, loose);
      cuda::batch_norm_backward(d, s,
                                {.x = in(x),
                                 .dy = in(dy),
                                 .scale = scale.data(),
                                 .mean = mean.data(),
                                 .inv_std = inv_std.data(),
                                 .relu = true,
                                 .y = in(y),
                                 .dx = out(dx),
                                 .dscale = dscale.data(),
                                 .db = db.data(),
                                 .g = out(g)},
                                {stream(), workspace.data()});
      reference::batch_norm_backward<double>(d, s,
                                             {.x = wx.data(),
                                              .dy = wdy.data(),
                                              .scale = wscale.data(),
                                              .mean = wmean.data(),
                                              .inv_std = winv.data(),
                                              .relu = true,
                                              .y = wy.data(),
                                              .dx = wdx.data(),
                                              .dscale = wdscale.data(),
                                              .db = wdb.data(),
                                              .g = wg.data()});
      if (mean_of_x != 0) continue;  // the masks of values near 0 may differ then
      expect_near(dx, wdx);
      expect_near(dscale, wdscale);
      expect_near(db, wdb);
      expect_near(g, wg);
    }
  }
}

TEST(EmulatedKernels, GroupNormalizationInBothLayouts) {
  for (const Norms& n : norms()) {
    for (const int64_t groups : {int64_t{1}, n.d.C % 4 == 0 ? n.d.C / 4 : n.d.C}) {
      SCOPED_TRACE(std::to_string(n.d.C) + (n.channels_last ? " last " : " first ") +
                   std::to_string(groups));
      const GroupNormDims d{n.d, groups};
      if (d.values() < 2) continue;
      const ImageStrides s = n.strides();
      const auto count = n.d.elements(), results = n.d.N * groups;
      const std::vector<float> x = values(count, 5, 3), dy = values(count, 6);
      const std::vector<float> scale = values(n.d.C, 7, 1.5, 0.4), b = values(n.d.C, 8);
      std::vector<float> y = nans(count), mean = nans(results), inv_std = nans(results),
                         dx = nans(count), dscale = nans(n.d.C), db = nans(n.d.C);
      auto workspace = testing::aligned_bytes(cuda::group_norm_workspace_bytes(d, s));
      cuda::group_norm_forward(d, s,
                               {.x = in(x),
                                .scale = scale.data(),
                                .b = b.data(),
                                .y = out(y),
                                .mean = mean.data(),
                                .inv_std = inv_std.data()},
                               {stream(), workspace.data()});
      cuda::group_norm_backward(d, s,
                                {.x = in(x),
                                 .scale = scale.data(),
                                 .mean = mean.data(),
                                 .inv_std = inv_std.data(),
                                 .dy = in(dy),
                                 .dx = out(dx),
                                 .dscale = dscale.data(),
                                 .db = db.data()},
                                {stream(), workspace.data()});
      const auto C = static_cast<size_t>(n.d.C);
      const std::vector<double> wx = wide(x), wdy = wide(dy), wscale = wide(scale), wb = wide(b);
      std::vector<double> wy(x.size()), wmean(mean.size()), winv(mean.size()), wdx(x.size()),
          wdscale(C), wdb(C);
      reference::group_norm_forward<double>(d, s,
                                            {.x = wx.data(),
                                             .scale = wscale.data(),
                                             .b = wb.data(),
                                             .y = wy.data(),
                                             .mean = wmean.data(),
                                             .inv_std = winv.data()});
      reference::group_norm_backward<double>(d, s,
                                             {.x = wx.data(),
                                              .scale = wscale.data(),
                                              .mean = wmean.data(),
                                              .inv_std = winv.data(),
                                              .dy = wdy.data(),
                                              .dx = wdx.data(),
                                              .dscale = wdscale.data(),
                                              .db = wdb.data()});
      expect_near(y, wy);
      expect_near(mean, wmean);
      expect_near(inv_std, winv);
      expect_near(dx, wdx);
      expect_near(dscale, wdscale);
      expect_near(db, wdb);
    }
  }
}

TEST(EmulatedKernels, BiasReluOfManyPixelsInBothLayouts) {
  using cuda::Format;
  const ImageDims shapes[] = {{3, 8, 17, 12}, {2, 5, 61, 53}, {1, 1, 1, 1}, {2, 260, 3, 2}};
  for (const ImageDims& d : shapes) {
    for (const bool channels_last : {true, false}) {
      for (const Format dpre_format : {Format::kF32, Format::kBf16, Format::kF16}) {
        SCOPED_TRACE(std::to_string(d.C) + (channels_last ? " channels-last " : " row-major ") +
                     std::to_string(static_cast<int>(dpre_format)));
        const int64_t count = d.elements();
        const ImageStrides s =
            channels_last ? ImageStrides::channels_last(d) : ImageStrides::row_major(d);
        const auto bias = values(d.C, 1), dy = values(count, 2, 0.25);
        std::vector<float> y = values(count, 3), db = nans(d.C);
        std::vector<double> y_wanted(y.size()), dpre_wanted(y.size()),
            db_wanted(static_cast<size_t>(d.C));
        const auto pre = y;
        cuda::bias_relu(d, channels_last, bias.data(), out(y), stream());
        std::vector<float> made = nans(count);
        const Out dpre{made.data(), dpre_format};
        auto memory =
            testing::aligned_bytes(cuda::bias_relu_backward_workspace_bytes(d, channels_last));
        cuda::bias_relu_backward(d, channels_last,
                                 {.y = in(y), .dy = in(dy), .dpre = dpre, .db = db.data()},
                                 {stream(), memory.data()});
        std::vector<float> got(y.size());
        for (int64_t n = 0; n < d.N; ++n) {
          for (int64_t c = 0; c < d.C; ++c) {
            for (int64_t h = 0; h < d.H; ++h) {
              for (int64_t w = 0; w < d.W; ++w) {
                const auto at = static_cast<size_t>(s.at(n, c, h, w));
                const float sum = pre[at] + bias[static_cast<size_t>(c)];
                y_wanted[at] = sum > 0 ? sum : 0;
                float slope = sum > 0 ? dy[at] : 0;
                Out{&slope, dpre_format}.set(0, slope);
                dpre_wanted[at] = In{&slope, dpre_format}[0];
                db_wanted[static_cast<size_t>(c)] += dpre_wanted[at];
                got[at] = In(dpre)[static_cast<int64_t>(at)];
              }
            }
          }
        }
        expect_near(y, y_wanted, 0);
        expect_near(got, dpre_wanted, 0);
        expect_near(db, db_wanted);
      }
    }
  }
}

// More tensors than fit into one launch, one large enough for several chunks, and an empty one.
TEST(EmulatedKernels, GradientNormOfManyTensors) {
  GradientNormParams p;
  p.max_norm = 1;
  std::vector<std::vector<float>> tensors;
  std::vector<In> views;
  double squares = 0;
  for (int64_t k = 0; k < 230; ++k) {
    const int64_t count = k == 7 ? 0 : k == 113 ? 40000 : 1 + k % 37;
    tensors.push_back(values(count, static_cast<uint64_t>(10 + k)));
    p.counts.push_back(count);
    for (const float v : tensors.back()) squares += static_cast<double>(v) * v;
  }
  for (const auto& t : tensors) views.push_back(in(t));
  float norm = 0, scale = 0;
  auto workspace = testing::aligned_bytes(cuda::gradient_norm_workspace_bytes(p));
  cuda::gradient_norm(p, {.g = views, .loss_scale = nullptr, .norm = &norm, .scale = &scale},
                      {stream(), workspace.data()});
  EXPECT_NEAR(norm, std::sqrt(squares), 1e-6 * std::sqrt(squares));
  EXPECT_NEAR(scale, 1 / std::sqrt(squares), 1e-6);
}

// If the norm is not finite, the scale is halved, the step is not counted, and its learning rate is
// the value that makes updates skip the step. A scale that would overflow stays.
TEST(EmulatedKernels, LossScaleFallsWhereGradientsAreNotFinite) {
  const auto step = [](float norm, float first, int64_t good) {
    struct Result {
      float scale, rate, used;
      int64_t good, updates, step;
    } r{first, 0, 0, good, 7, -1};
    const float rate = 0.5f;
    cuda::loss_scale_update({2, 0.5, 3}, &norm, &rate, {&r.scale, &r.good, &r.updates},
                            {&r.rate, &r.step, &r.used}, stream());
    return r;
  };
  for (const float norm : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    const auto r = step(norm, 8, 2);
    EXPECT_EQ(r.scale, 4);
    EXPECT_EQ(r.used, 8);
    EXPECT_EQ(r.good, 0);
    EXPECT_EQ(r.updates, 7);
    EXPECT_TRUE(std::isnan(r.rate));
  }
  const auto good = step(1, 8, 1), grown = step(1, 8, 2), full = step(1, 0x1p127f, 2);
  EXPECT_EQ(good.scale, 8);
  EXPECT_EQ(good.good, 2);
  EXPECT_EQ(good.step, 7);
  EXPECT_EQ(good.updates, 8);
  EXPECT_EQ(good.rate, 0.5f);
  EXPECT_EQ(grown.scale, 16);
  EXPECT_EQ(grown.used, 8);
  EXPECT_EQ(grown.good, 0);
  EXPECT_EQ(full.scale, 0x1p127f);
}

TEST(EmulatedKernels, AdafactorOfLargeMatrices) {
  for (const AdafactorParams& s : {AdafactorParams{1, 300, 70, -0.8, 0x1p-23, 1e-3, 1, 0.01, 1},
                                   AdafactorParams{3, 40, 200, -0.8, 0x1p-23, 1e-3, 1, 0, 1},
                                   AdafactorParams{1, 0, 5000, -0.8, 0x1p-23, 1e-3, 1, 0, 1}}) {
    const int64_t count = s.count(), rows = s.batch * s.rows, columns = s.batch * s.columns;
    const std::vector<float> g = values(count, 20);
    std::vector<float> p = values(count, 21), row = values(rows, 22, 0.5, 0.4),
                       column = values(columns, 23, 0.5, 0.4);
    std::vector<double> wp = wide(p), wrow = wide(row), wcolumn = wide(column);
    const std::vector<double> wg = wide(g);
    const float rate = 0.01f;
    const int64_t step = 41;
    auto workspace = testing::aligned_bytes(cuda::adafactor_workspace_bytes(s));
    const bool is_vector = s.rows == 0;
    cuda::adafactor(s,
                    {.g = in(g),
                     .learning_rate = &rate,
                     .step = &step,
                     .p = p.data(),
                     .row = is_vector ? nullptr : row.data(),
                     .column = column.data()},
                    {stream(), workspace.data()});
    reference::adafactor<double>(s, {.g = wg.data(),
                                     .learning_rate = &rate,
                                     .step = &step,
                                     .p = wp.data(),
                                     .row = is_vector ? nullptr : wrow.data(),
                                     .column = wcolumn.data()});
    expect_near(p, wp);
    expect_near(row, wrow);
    expect_near(column, wcolumn);
  }
}

// The refusals that tests/kernels/contract_test.cc tests on the host.
TEST(EmulatedKernels, RefuseWrongCalls) {
  const float number = 1;
  const int32_t label = 0;
  float loss = 7;
  std::vector<float> prob = nans(2);
  auto workspace = testing::aligned_bytes(1);
  const auto error_of = [&](const SoftmaxXentParams& p, const float* z, void* memory) {
    const SoftmaxXentOperands<cuda::Views, int32_t> o{
        .z = z, .target = &label, .loss = &loss, .prob = prob.data()};
    try {
      cuda::softmax_xent_forward(p, nullptr, o, {stream(), memory});
    } catch (const ContractError& e) {
      return std::string(e.what());
    }
    return std::string("none");
  };
  EXPECT_EQ(error_of({0, 2}, &number, workspace.data()),
            "softmax_xent_forward: rows is 0, not 1 or more");
  EXPECT_EQ(error_of({1, 2}, nullptr, workspace.data()), "softmax_xent_forward: z is missing");
  EXPECT_EQ(error_of({1, 2}, &number, workspace.data()->bytes.data() + 16),
            "softmax_xent_forward: workspace is not aligned");
  EXPECT_EQ(loss, 7);
}

// Small batches with few classes take one launch forward and one backward.
TEST(EmulatedKernels, ClassificationLossOfAllSizes) {
  for (const int64_t rows : {1, 7, 128, 131, 256, 257, 1025}) {
    for (const int64_t classes : {2, 10, 32, 33, 300}) {
      for (const bool plain : {true, false}) {
        SCOPED_TRACE(std::to_string(rows) + " rows of " + std::to_string(classes) +
                     (plain ? "" : ", smoothed, weighted, one class ignored"));
        SoftmaxXentParams p{rows, classes};
        const std::vector<float> z = values(rows * classes, 1, 0, 4), dloss = {2};
        std::vector<float> weights;
        if (!plain) {
          p.smoothing = 0.1;
          p.ignored = 1;
          weights = values(classes, 2, 2);
          p.weights = wide(weights);
        }
        std::vector<int32_t> labels(static_cast<size_t>(rows));
        for (size_t i = 0; i < labels.size(); ++i) {
          labels[i] = static_cast<int32_t>(i * 7 % static_cast<size_t>(classes));
        }
        std::vector<double> prob(z.size()), dz(z.size()), loss(1);
        reference::softmax_xent_forward<double, int32_t>(p, {.z = wide(z).data(),
                                                             .target = labels.data(),
                                                             .loss = loss.data(),
                                                             .prob = prob.data()});
        reference::softmax_xent_backward<double, int32_t>(p, {.prob = prob.data(),
                                                              .target = labels.data(),
                                                              .dloss = wide(dloss).data(),
                                                              .dz = dz.data()});
        std::vector<float> in_place = z, got_loss = nans(1);
        const float* const w = plain ? nullptr : weights.data();
        auto workspace = testing::aligned_bytes(cuda::softmax_xent_forward_workspace_bytes(p));
        cuda::softmax_xent_forward(
            p, w,
            SoftmaxXentOperands<cuda::Views, int32_t>{.z = in_place.data(),
                                                      .target = labels.data(),
                                                      .loss = got_loss.data(),
                                                      .prob = in_place.data()},
            {stream(), workspace.data()});
        expect_near(in_place, prob);
        expect_near(got_loss, loss);
        workspace = testing::aligned_bytes(cuda::softmax_xent_backward_workspace_bytes(p));
        const int64_t before = cuda::emulator::launch_count();
        cuda::softmax_xent_backward(
            p, w,
            SoftmaxXentGradOperands<cuda::Views, int32_t>{.prob = in_place.data(),
                                                          .target = labels.data(),
                                                          .dloss = dloss.data(),
                                                          .dz = in_place.data()},
            {stream(), workspace.data()});
        EXPECT_EQ(cuda::emulator::launch_count() - before, rows <= 1024 ? 1 : 2);
        expect_near(in_place, dz);
      }
    }
  }
}

TEST(EmulatedKernels, MaxPoolGradientPicksOneCell) {
  for (const bool channels_last : {true, false}) {
    PoolDims d{{2, 6, 13, 17}, {3, 2, 2, 1, 1, 0, 1, 1, 2, 1}};
    const auto layout = [&](const ImageDims& i) {
      return channels_last ? ImageStrides::channels_last(i) : ImageStrides::row_major(i);
    };
    const PoolStrides s{layout(d.x), layout(d.y())};
    std::vector<float> x = values(d.x.elements(), 30);
    for (size_t i = 0; i < x.size(); ++i) x[i] = std::round(4 * x[i]);  // many equal values
    x[100] = std::nanf("");
    const std::vector<float> dy = values(d.y().elements(), 31);
    std::vector<float> y = nans(d.y().elements()), dx = nans(d.x.elements());
    std::vector<float> expected = nans(d.x.elements());
    auto workspace = testing::aligned_bytes(cuda::max_pool_backward_workspace_bytes(d));
    cuda::max_pool_backward(d, s, {.x = in(x), .dy = in(dy), .dx = out(dx)},
                            {stream(), workspace.data()});
    reference::max_pool_backward<float>(d, s,
                                        {.x = x.data(), .dy = dy.data(), .dx = expected.data()});
    expect_near(dx, wide(expected));
  }
}

// More indices than a block has threads; the list of one micro-batch, and the rows that the next
// one adds.
TEST(EmulatedKernels, ListsDistinctRowsOfManyBlocks) {
  constexpr int64_t kTable = 90'000, kIndices = 34'000;
  const DistinctRowsParams p{kIndices / 2, kIndices, 2 * kIndices, kTable};
  struct Lists {
    std::vector<int32_t> rows, position, kept;
    bool operator==(const Lists&) const = default;
  };
  const Lists nothing{std::vector<int32_t>(2 * kIndices, -7), std::vector<int32_t>(kIndices / 2),
                      std::vector<int32_t>(2 * kIndices, 5)};
  Lists expected = nothing, got = nothing;
  auto workspace = testing::aligned_bytes(cuda::distinct_rows_workspace_bytes(p));
  for (int64_t micro_step = 0; micro_step < 2; ++micro_step) {
    std::vector<int32_t> all(kIndices);
    for (size_t i = 0; i < all.size(); ++i) {
      all[i] = static_cast<int32_t>(math::philox_u32(3, 0, static_cast<uint64_t>(micro_step), i) %
                                    static_cast<uint32_t>(kTable));
    }
    const auto of = [&](Lists& lists) {  // the second of two ranks
      return DistinctRowsOperands{
          all.data() + kIndices / 2, all.data(),        &micro_step,
          lists.kept.data(),         lists.rows.data(), lists.position.data()};
    };
    reference::distinct_rows<float>(p, of(expected), {});
    cuda::distinct_rows(p, of(got), {stream(), workspace.data()});
    EXPECT_TRUE(got == expected) << "micro-batch " << micro_step;
  }
}

}  // namespace
}  // namespace trainyard::kernels

namespace trainyard {
namespace {

TEST(EmulatedConvolution, WithoutAnEngineIsAnErrorWithNodeAndShape) {
  testing::CaseBuilder b(DType::kF32);
  const TensorId x = b.image("x", {2, 3, 5, 36});  // too wide for our own kernels
  b.one("stem", "Conv", {}, {x, b.parameter("w", {4, 3, 3, 2})});
  const Graph& graph = b.graph();
  cuda::CudaBackend cuda(0);
  testing::set_convolution_engines(false);
  std::string what;
  try {
    (void)cuda.prepare(graph, graph.nodes().back());
  } catch (const CudaError& e) {
    what = e.what();
    EXPECT_EQ(e.fault(), CudaFault::kProgram);  // so the GPU needs no check
  }
  testing::set_convolution_engines(true);
  for (const std::string part : {"stem", "[2, 3, 5, 36]", "[4, 3, 3, 2]", "[2, 4, 3, 35]", "F32"}) {
    EXPECT_NE(what.find(part), std::string::npos) << part << " in: " << what;
  }
  EXPECT_NO_THROW((void)cuda.prepare(graph, graph.nodes().back()));
}

// The choice is the first proposed engine that is deterministic, without TF32, within the workspace
// budget and able to make a plan. Tensor cores are for operands of 16 bits, and for F32 where TF32
// is allowed.
TEST(EmulatedConvolution, TellsWhichEngineItTook) {
  using enum kernels::cuda::Format;
  const cuda::Device device(0);
  kernels::ConvDims d{{2, 3, 5, 36}, 4, {}, 1};
  d.window = {3, 3};
  const cuda::Convolution c(device, "conv", cuda::ConvolutionPass::kForward, d, true,
                            cuda::Convolution::Epilogue::kNone, {kF32, kF32, kF32, false});
  const std::string knobs = " " + std::to_string(CUDNN_KNOB_TYPE_TILE_SIZE) + "=7";
  EXPECT_EQ(c.choice(), "cudnn engine=4" + knobs);
  const auto choice = [&](cuda::Convolution::Storage storage) {
    return cuda::Convolution(device, "conv", cuda::ConvolutionPass::kForward, d, true,
                             cuda::Convolution::Epilogue::kNone, storage)
        .choice();
  };
  EXPECT_EQ(choice({kF32, kF32, kF32, true}), "cudnn engine=1" + knobs);
  EXPECT_EQ(choice({kF16, kF16, kF16, false}), "cudnn engine=1" + knobs);
  EXPECT_EQ(choice({kBf16, kBf16, kBf16, false}), "cudnn engine=1" + knobs);
}

}  // namespace
}  // namespace trainyard
