// Catches: gradients of layer normalization that are right only for the few rows of
// emulated_parity_test.cc, where no thread processes a second row and no block adds to another's
// sums; and a backward pass that reads its operands twice.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "kernels/cuda/emulator.h"
#include "kernels/layer_norm.h"
#include "kernels/math/philox.h"
#include "tests/cuda/aligned_bytes.h"
#include "tests/cuda/emulated_device.h"

namespace trainyard::kernels {
namespace {

using cuda::Format;
using cuda::In;
using cuda::Out;
using testing::stream;
using testing::wide;

struct Rows {
  LayerNormDims d;
  int64_t launches;  // of a backward pass
};
// Rows of each number of packs per thread, of a warp and of a block; more rows than warps or
// blocks.
const Rows kRows[] = {
    {{2200, 132}, 2},  {{1030, 384}, 2}, {{1030, 768}, 2}, {{1027, 772}, 2},
    {{1027, 1024}, 2}, {{600, 1028}, 2}, {{3, 3076}, 2},   {{3, 6016}, 2},
    {{3, 6020}, 3},    {{70, 33}, 3},    {{1, 4}, 2},      {{2200, 132, 1e-5, true}, 2},
};

/// Distinct pseudo-random values around `offset`.
std::vector<float> norm_values(int64_t count, uint64_t seed, float offset = 0) {
  std::vector<float> v(static_cast<size_t>(count));
  for (size_t i = 0; i < v.size(); ++i) {
    v[i] = offset + static_cast<float>(math::philox_u32(seed, 0, 7, i)) * 0x1p-31f - 1.0f;
  }
  return v;
}
std::vector<math::Bf16> in_half(const std::vector<float>& x) {
  std::vector<math::Bf16> y(x.size());
  for (size_t i = 0; i < x.size(); ++i)
    Out{y.data(), Format::kBf16}.set(static_cast<int64_t>(i), x[i]);
  return y;
}

struct Gradients {
  std::vector<float> dx, dscale, db;
  bool operator==(const Gradients&) const = default;
};

class LayerNormRows {
 public:
  explicit LayerNormRows(const LayerNormDims& d)
      : d_(d),
        x_(norm_values(d.rows * d.width, 1, 3)),
        dy_(norm_values(d.rows * d.width, 2)),
        scale_(norm_values(d.width, 3, 2)),
        b_(norm_values(d.width, 4)) {
    mean_.resize(static_cast<size_t>(d.rows));
    inv_std_.resize(mean_.size());
    std::vector<float> y(x_.size());
    cuda::layer_norm_forward(d,
                             {.x = {x_.data()},
                              .scale = {scale_.data()},
                              .b = {d.rms ? nullptr : b_.data()},
                              .y = {y.data()},
                              .mean = mean(),
                              .inv_std = inv_std_.data()},
                             stream());
  }

  /// Computes the gradients on the emulated GPU; dx overwrites a copy of dy.
  Gradients backward() {
    Gradients g{dy_, nans(), d_.rms ? std::vector<float>() : nans()};
    run({x_.data()}, {g.dx.data()}, {g.dx.data()}, g);
    return g;
  }
  /// The same with x, dy and dx in bf16.
  Gradients backward_in_half() {
    const std::vector<math::Bf16> x = in_half(x_);
    std::vector<math::Bf16> dy = in_half(dy_);
    Gradients g{dy_, nans(), d_.rms ? std::vector<float>() : nans()};
    const In dx{dy.data(), Format::kBf16};
    run({x.data(), Format::kBf16}, dx, {dy.data(), Format::kBf16}, g);
    for (size_t i = 0; i < g.dx.size(); ++i) g.dx[i] = dx[static_cast<int64_t>(i)];
    return g;
  }
  void expect(const Gradients& got, double relative_max) const {
    const std::vector<double> x = wide(x_), dy = wide(dy_), scale = wide(scale_),
                              mean = wide(mean_), inv_std = wide(inv_std_);
    std::vector<double> dx(x.size()), dscale(scale.size()), db(scale.size());
    reference::layer_norm_backward<double>(d_, {.x = x.data(),
                                                .scale = scale.data(),
                                                .mean = d_.rms ? nullptr : mean.data(),
                                                .inv_std = inv_std.data(),
                                                .dy = dy.data(),
                                                .dx = dx.data(),
                                                .dscale = dscale.data(),
                                                .db = d_.rms ? nullptr : db.data()});
    expect_near(got.dx, dx, relative_max);
    expect_near(got.dscale, dscale, relative_max);
    if (!d_.rms) expect_near(got.db, db, relative_max);
  }

 private:
  float* mean() { return d_.rms ? nullptr : mean_.data(); }
  std::vector<float> nans() const {
    return std::vector<float>(static_cast<size_t>(d_.width), std::nanf(""));
  }
  void run(In x, In dy, Out dx, Gradients& g) {
    auto workspace = testing::aligned_bytes(cuda::layer_norm_backward_workspace_bytes(d_));
    cuda::layer_norm_backward(d_,
                              {.x = x,
                               .scale = {scale_.data()},
                               .mean = mean(),
                               .inv_std = inv_std_.data(),
                               .dy = dy,
                               .dx = dx,
                               .dscale = {g.dscale.data()},
                               .db = {d_.rms ? nullptr : g.db.data()}},
                              {stream(), workspace.data()});
  }
  static void expect_near(const std::vector<float>& got, const std::vector<double>& expected,
                          double relative_max) {
    ASSERT_EQ(got.size(), expected.size());
    double largest = 1e-6;
    for (const double v : expected) largest = std::max(largest, std::abs(v));
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_LE(std::abs(got[i] - expected[i]), relative_max * largest) << i;
    }
  }

  LayerNormDims d_;
  std::vector<float> x_, dy_, scale_, b_, mean_, inv_std_;
};

TEST(EmulatedLayerNorm, GradientsOfManyRowsAreRightInOnePass) {
  for (const Rows& rows : kRows) {
    SCOPED_TRACE(std::to_string(rows.d.rows) + " x " + std::to_string(rows.d.width) +
                 (rows.d.rms ? " rms" : ""));
    LayerNormRows norm(rows.d);
    const int64_t before = cuda::emulator::launch_count();
    const Gradients got = norm.backward();
    EXPECT_EQ(cuda::emulator::launch_count() - before, rows.launches);
    norm.expect(got, 2e-5);
    EXPECT_EQ(norm.backward(), got);
  }
}

TEST(EmulatedLayerNorm, ReadsRowsInSixteenBits) {
  for (const LayerNormDims& d : {LayerNormDims{1030, 260}, LayerNormDims{5, 1028}}) {
    SCOPED_TRACE(d.width);
    LayerNormRows norm(d);
    norm.expect(norm.backward_in_half(), 0.02);  // operands are rounded to 8 bits
  }
}

}  // namespace
}  // namespace trainyard::kernels
