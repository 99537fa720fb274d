// Catches: a kernel of a convolutional network that is right only in one format, layout or channel
// count. Channels in multiples of eight of one format use other kernels than the rest
// (kernels/cuda/channels_last_norm.h, pool.cu), so every case is run with both.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "kernels/arithmetic.h"
#include "kernels/batch_norm.h"
#include "kernels/cuda/convert.h"
#include "kernels/math/philox.h"
#include "kernels/pool.h"
#include "tests/cuda/aligned_bytes.h"
#include "tests/cuda/emulated_device.h"

namespace trainyard::kernels {
namespace {

using cuda::Format;
using cuda::In;
using cuda::Out;
using testing::stream;
using testing::wide;

/// Memory for elements of one format, which starts as NaN. The first element is `skew` elements
/// behind an aligned address.
class Tensor {
 public:
  Tensor(int64_t count, Format format, int64_t skew = 0)
      : count_(count),
        skew_(skew),
        format_(format),
        bytes_(static_cast<size_t>((count + skew) * cuda::element_bytes(format)), std::byte{0xFF}) {
  }
  /// Distinct pseudo-random values in [offset - 1, offset + 1).
  Tensor(int64_t count, Format format, uint64_t seed, double offset, int64_t skew = 0)
      : Tensor(count, format, skew) {
    for (int64_t i = 0; i < count; ++i) {
      const double u = math::philox_u32(seed, 0, 7, static_cast<uint64_t>(i)) / 4294967296.0;
      set(i, static_cast<float>(offset + 2 * u - 1));
    }
  }
  Out out() { return Out{bytes_.data(), format_} + skew_; }
  In in() const { return In{bytes_.data(), format_} + skew_; }
  void set(int64_t i, float v) { out().set(i, v); }
  std::vector<double> wide() const {
    std::vector<double> v(static_cast<size_t>(count_));
    for (int64_t i = 0; i < count_; ++i) v[static_cast<size_t>(i)] = in()[i];
    return v;
  }
  bool operator==(const Tensor& other) const { return bytes_ == other.bytes_; }

 private:
  int64_t count_, skew_;
  Format format_;
  std::vector<std::byte> bytes_;
};

/// The allowed error of a stored result: half a step of its format, plus the error of the sums.
double tolerance(Format format) {
  return format == Format::kF32 ? 3e-5 : format == Format::kBf16 ? 0x1p-8 : 0x1p-11;
}

void expect_near_or_nan(const std::vector<double>& got, const std::vector<double>& expected,
                        double relative_max, const char* name) {
  ASSERT_EQ(got.size(), expected.size());
  double scale = 1e-6;
  for (const double v : expected) scale = std::max(scale, std::abs(v));
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(expected[i]) && std::isnan(got[i])) continue;
    ASSERT_LE(std::abs(got[i] - expected[i]), relative_max * scale)
        << name << "[" << i << "] " << got[i] << ", expected " << expected[i];
  }
}

enum class Relu : uint8_t { kNone, kByResult, kByInput };  // how the backward pass gets ReLU's mask

struct NormCase {
  ImageDims d;
  bool channels_last;
  Format x, dy;  // the types of x and y, and of dy, dx and g
  Relu relu;
  int64_t skew = 0;  // elements between x and an aligned address
  ImageStrides strides() const {
    return channels_last ? ImageStrides::channels_last(d) : ImageStrides::row_major(d);
  }
};
std::ostream& operator<<(std::ostream& out, const NormCase& c) {
  return out << "[" << c.d.N << ", " << c.d.C << ", " << c.d.H << ", " << c.d.W << "]"
             << (c.channels_last ? " channels-last" : " row-major") << " formats "
             << static_cast<int>(c.x) << " " << static_cast<int>(c.dy) << " relu "
             << static_cast<int>(c.relu) << " skew " << c.skew;
}

std::vector<NormCase> norm_cases() {
  std::vector<NormCase> cases;
  const std::pair<Format, Format> formats[] = {{Format::kF32, Format::kF32},
                                               {Format::kBf16, Format::kBf16},
                                               {Format::kF16, Format::kF16},
                                               {Format::kBf16, Format::kF32}};
  for (const auto& [x, dy] : formats) {
    for (const Relu relu : {Relu::kNone, Relu::kByResult, Relu::kByInput}) {
      for (const int64_t C : {1, 3, 7, 8, 20, 64})
        cases.push_back({{2, C, 5, 7}, true, x, dy, relu});
      cases.push_back({{3, 24, 37, 41}, true, x, dy, relu});  // several slices; odd sizes
      // more groups of eight channels than a block has lanes
      cases.push_back({{37, 264, 1, 1}, true, x, dy, relu});
      cases.push_back({{2, 16, 3, 3}, true, x, dy, relu, 1});  // unaligned
      cases.push_back({{2, 16, 5, 8}, false, x, dy, relu});
      cases.push_back({{9, 40, 1, 1}, false, x, dy, relu});  // one pixel: the layouts coincide
    }
  }
  return cases;
}

/// A run forward and backward, and the reference's results for the same inputs.
struct NormRun {
  const NormCase& c;
  BatchNormDims d{c.d};
  ImageStrides s = c.strides();
  int64_t count = c.d.elements();
  size_t C = static_cast<size_t>(c.d.C);
  Tensor x{count, c.x, 5, 3, c.skew}, residual{count, c.x, 9, 0, c.skew}, dy{count, c.dy, 6, 0};
  Tensor y{count, c.x, c.skew}, dx{count, c.dy}, g{count, c.dy};
  std::vector<float> scale = vector(7, 1.5), b = vector(8, 0);
  std::vector<float> running_mean = std::vector<float>(C, 0.5f);
  std::vector<float> running_var = std::vector<float>(C, 2.0f);
  std::vector<float> mean = nans(), inv_std = nans(), dscale = nans(), db = nans();
  std::vector<testing::AlignedBlock> workspace =
      testing::aligned_bytes(cuda::batch_norm_workspace_bytes(d, s));

  explicit NormRun(const NormCase& of) : c(of) {}
  std::vector<float> vector(uint64_t seed, double offset) const {
    const std::vector<double> v = Tensor(c.d.C, Format::kF32, seed, offset).wide();
    return {v.begin(), v.end()};
  }
  std::vector<float> nans() const { return std::vector<float>(C, std::nanf("")); }
  bool adds() const { return c.relu == Relu::kByResult; }

  void forward() {
    cuda::batch_norm_training(d, s,
                              {.x = x.in(),
                               .scale = scale.data(),
                               .b = b.data(),
                               .running_mean = running_mean.data(),
                               .running_var = running_var.data(),
                               .residual = adds() ? residual.in() : In(),
                               .relu = c.relu != Relu::kNone,
                               .y = y.out(),
                               .mean = mean.data(),
                               .inv_std = inv_std.data()},
                              {stream(), workspace.data()});
  }
  void backward(Out to_dx, Out to_g) { backward(dy.in(), {}, to_dx, to_g); }
  void backward(In gradient, In skip, Out to_dx, Out to_g) {
    const bool by_input = c.relu == Relu::kByInput;
    cuda::batch_norm_backward(d, s,
                              {.x = x.in(),
                               .dy = gradient,
                               .scale = scale.data(),
                               .mean = mean.data(),
                               .inv_std = inv_std.data(),
                               .relu = c.relu != Relu::kNone,
                               .b = by_input ? b.data() : nullptr,
                               .y = adds() ? y.in() : In(),
                               .dx = to_dx,
                               .dscale = dscale.data(),
                               .db = db.data(),
                               .g = to_g},
                              {stream(), workspace.data()}, skip);
  }
};

TEST(EmulatedImages, BatchNormalizationInEveryFormat) {
  for (const NormCase& c : norm_cases()) {
    SCOPED_TRACE(::testing::PrintToString(c));
    NormRun r(c);
    r.forward();
    std::vector<double> wy(static_cast<size_t>(r.count)), mean(r.C), inv_std(r.C);
    std::vector<double> running_mean(r.C, 0.5), running_var(r.C, 2.0);
    const std::vector<double> x = r.x.wide(), scale = wide(r.scale), b = wide(r.b);
    const std::vector<double> residual = r.residual.wide();
    reference::batch_norm_training<double>(r.d, r.s,
                                           {.x = x.data(),
                                            .scale = scale.data(),
                                            .b = b.data(),
                                            .running_mean = running_mean.data(),
                                            .running_var = running_var.data(),
                                            .residual = r.adds() ? residual.data() : nullptr,
                                            .relu = c.relu != Relu::kNone,
                                            .y = wy.data(),
                                            .mean = mean.data(),
                                            .inv_std = inv_std.data()});
    expect_near_or_nan(wide(r.mean), mean, 2e-6, "mean");
    expect_near_or_nan(wide(r.inv_std), inv_std, 2e-5, "inv_std");
    expect_near_or_nan(wide(r.running_mean), running_mean, 2e-6, "running_mean");
    expect_near_or_nan(wide(r.running_var), running_var, 2e-5, "running_var");
    expect_near_or_nan(r.y.wide(), wy, tolerance(c.x), "y");

    r.backward(r.dx.out(), c.relu == Relu::kNone ? Out() : r.g.out());
    std::vector<double> dx(wy.size()), dscale(r.C), db(r.C), g(wy.size());
    const std::vector<double> dy = r.dy.wide(), y = r.y.wide();
    const bool relu = c.relu != Relu::kNone;
    reference::batch_norm_backward<double>(r.d, r.s,
                                           {.x = x.data(),
                                            .dy = dy.data(),
                                            .scale = scale.data(),
                                            .mean = mean.data(),
                                            .inv_std = inv_std.data(),
                                            .relu = relu,
                                            .b = relu && !r.adds() ? b.data() : nullptr,
                                            .y = r.adds() ? y.data() : nullptr,
                                            .dx = dx.data(),
                                            .dscale = dscale.data(),
                                            .db = db.data(),
                                            .g = relu ? g.data() : nullptr});
    if (relu) expect_near_or_nan(r.g.wide(), g, 0, "g");
    expect_near_or_nan(r.dx.wide(), dx, tolerance(c.dy), "dx");
    expect_near_or_nan(wide(r.dscale), dscale, 3e-5, "dscale");
    expect_near_or_nan(wide(r.db), db, 3e-5, "db");
    if (::testing::Test::HasFatalFailure()) return;
  }
}

// The plan may place dx and g in the memory of dy and y, in either order: each thread reads an
// element before it writes it.
TEST(EmulatedImages, BatchNormalizationInPlaceHasTheSameBits) {
  for (NormCase c : norm_cases()) {
    if (c.relu == Relu::kNone || c.x != c.dy) continue;
    SCOPED_TRACE(::testing::PrintToString(c));
    c.skew = 0;
    NormRun apart(c);
    apart.forward();
    apart.backward(apart.dx.out(), apart.g.out());
    NormRun dx_in_dy(c), g_in_dy(c);
    dx_in_dy.forward();
    g_in_dy.forward();
    EXPECT_EQ(dx_in_dy.y, apart.y);
    dx_in_dy.backward(dx_in_dy.dy.out(), dx_in_dy.y.out());
    g_in_dy.backward(g_in_dy.y.out(), g_in_dy.dy.out());
    EXPECT_EQ(dx_in_dy.dy, apart.dx);
    EXPECT_EQ(dx_in_dy.y, apart.g);
    EXPECT_EQ(g_in_dy.y, apart.dx);
    EXPECT_EQ(g_in_dy.dy, apart.g);
    EXPECT_EQ(dx_in_dy.dscale, apart.dscale);
    EXPECT_EQ(g_in_dy.db, apart.db);
  }
}

// The bits equal those of adding the two gradients first, wherever dx and g are, and if either is
// missing.
TEST(EmulatedImages, BatchNormalizationAddsGradientsOfTwoReaders) {
  for (const NormCase& c : norm_cases()) {
    if (c.relu == Relu::kNone) continue;
    SCOPED_TRACE(::testing::PrintToString(c));
    NormRun apart(c);
    apart.forward();
    const Tensor skip(apart.count, c.dy, 10, 0);
    Tensor sum(apart.count, c.dy);
    Box<3> box;
    box.append(apart.count, {1, 1, 1});
    cuda::arithmetic<math::Add>(box, apart.dy.in(), skip.in(), sum.out(), stream());
    apart.backward(sum.in(), {}, apart.dx.out(), apart.g.out());

    NormRun added(c), dx_alone(c), g_alone(c), dx_in_dy(c), g_in_dy(c);
    for (NormRun* r : {&added, &dx_alone, &g_alone, &dx_in_dy, &g_in_dy}) r->forward();
    added.backward(added.dy.in(), skip.in(), added.dx.out(), added.g.out());
    dx_alone.backward(skip.in(), dx_alone.dy.in(), dx_alone.dx.out(), {});
    g_alone.backward(g_alone.dy.in(), skip.in(), {}, g_alone.g.out());
    Tensor other = skip;
    dx_in_dy.backward(dx_in_dy.dy.in(), other.in(), dx_in_dy.dy.out(), other.out());
    EXPECT_EQ(other, apart.g);
    other = skip;
    g_in_dy.backward(g_in_dy.dy.in(), other.in(), other.out(), g_in_dy.dy.out());
    EXPECT_EQ(other, apart.dx);
    EXPECT_EQ(added.dx, apart.dx);
    EXPECT_EQ(dx_alone.dx, apart.dx);
    EXPECT_EQ(added.g, apart.g);
    EXPECT_EQ(g_alone.g, apart.g);
    EXPECT_EQ(dx_in_dy.dy.wide(), apart.dx.wide());
    EXPECT_EQ(g_in_dy.dy.wide(), apart.g.wide());
    for (const NormRun* r : {&added, &dx_alone, &g_alone, &dx_in_dy, &g_in_dy}) {
      EXPECT_EQ(r->dscale, apart.dscale);
      EXPECT_EQ(r->db, apart.db);
    }
  }
}

// Omitting one of the gradients does not change the remaining ones.
TEST(EmulatedImages, BatchNormalizationGradientsThatAreNotWanted) {
  for (const NormCase& c : norm_cases()) {
    if (c.relu == Relu::kNone) continue;
    SCOPED_TRACE(::testing::PrintToString(c));
    NormRun all(c), without_g(c), without_dx(c);
    for (NormRun* r : {&all, &without_g, &without_dx}) r->forward();
    all.backward(all.dx.out(), all.g.out());
    without_g.backward(without_g.dx.out(), {});
    without_dx.backward({}, without_dx.g.out());
    EXPECT_EQ(without_g.dx, all.dx);
    EXPECT_EQ(without_dx.g, all.g);
    EXPECT_EQ(without_g.dscale, all.dscale);
    EXPECT_EQ(without_dx.dscale, all.dscale);
  }
}

// A NaN and an infinity must pass through max(0, .), forward and backward, so that training stops.
TEST(EmulatedImages, BatchNormalizationPassesNanThroughRelu) {
  const NormCase cases[] = {{{2, 16, 3, 3}, true, Format::kF32, Format::kF32, Relu::kByResult},
                            {{2, 16, 3, 3}, true, Format::kBf16, Format::kBf16, Relu::kByResult},
                            {{2, 16, 3, 3}, true, Format::kF16, Format::kF16, Relu::kByResult},
                            {{2, 15, 3, 3}, true, Format::kBf16, Format::kBf16, Relu::kByResult}};
  for (const NormCase& c : cases) {
    SCOPED_TRACE(::testing::PrintToString(c));
    NormRun r(c);
    r.residual.set(0, std::numeric_limits<float>::quiet_NaN());
    r.residual.set(1, std::numeric_limits<float>::infinity());
    r.dy.set(2, std::numeric_limits<float>::quiet_NaN());
    r.forward();
    const std::vector<double> y = r.y.wide();
    EXPECT_TRUE(std::isnan(y[0]));
    EXPECT_EQ(y[1], std::numeric_limits<double>::infinity());
    EXPECT_TRUE(std::isfinite(y[3]));
    r.y.set(2, 1.0f);
    r.backward(r.dx.out(), r.g.out());
    const std::vector<double> g = r.g.wide(), dy = r.dy.wide();
    EXPECT_EQ(g[0], dy[0]);  // y is NaN there, which is not below 0
    EXPECT_TRUE(std::isnan(g[2]));
    EXPECT_TRUE(std::isnan(r.dscale[2]));
    EXPECT_TRUE(std::isnan(r.dx.wide()[2]));
    EXPECT_FALSE(std::isnan(r.dscale[3]));
  }
}

// Counts of one pack, of too few packs for a thread's batch of loads, and of blocks with a
// remainder; an odd count; an unaligned address; and in place.
TEST(EmulatedImages, DenseSumsAndCastsInEveryFormat) {
  for (const int64_t count : {8, 24, 4096, 20008, 77}) {
    for (const Format format : {Format::kF32, Format::kBf16, Format::kF16}) {
      for (const int64_t skew : {0, 1}) {
        SCOPED_TRACE(std::to_string(count) + " format " + std::to_string(static_cast<int>(format)) +
                     " skew " + std::to_string(skew));
        Tensor a(count, format, 1, 0, skew), b(count, format, 2, 0), y(count, format);
        Box<3> box;
        box.append(count, {1, 1, 1});
        cuda::arithmetic<math::Add>(box, a.in(), b.in(), y.out(), stream());
        Tensor narrow(count, format), widened(count, Format::kF32), expected(count, format);
        for (int64_t i = 0; i < count; ++i) expected.set(i, a.in()[i] + b.in()[i]);
        EXPECT_EQ(y, expected);
        cuda::convert(count, y.in(), widened.out(), stream());
        cuda::convert(count, widened.in(), narrow.out(), stream());
        EXPECT_EQ(widened.wide(), y.wide());
        EXPECT_EQ(narrow, y);
        cuda::arithmetic<math::Add>(box, a.in(), b.in(), b.out(), stream());
        EXPECT_EQ(b, y);
      }
    }
  }
}

struct PoolCase {
  PoolDims d;  // run with and without ReLU
  bool channels_last;
  Format x, dy;
};
std::ostream& operator<<(std::ostream& out, const PoolCase& c) {
  const Window& w = c.d.window;
  return out << "[" << c.d.x.N << ", " << c.d.x.C << ", " << c.d.x.H << ", " << c.d.x.W << "] by "
             << w.R << "x" << w.S << " stride " << w.stride_h << " dilation " << w.dilation_w
             << (c.channels_last ? " channels-last" : " row-major") << " formats "
             << static_cast<int>(c.x) << " " << static_cast<int>(c.dy);
}

/// Compares a pool that includes ReLU with the reference; the winners also determine ReLU's
/// gradient.
void expect_relu_of_both(const PoolCase& c, const PoolStrides& s, const Tensor& x,
                         const Tensor& dy) {
  PoolDims d = c.d;
  d.relu = true;
  const auto count = static_cast<size_t>(d.y().elements());
  Tensor y(d.y().elements(), c.x), alone = y, dx(d.x.elements(), c.dy);
  std::vector<uint8_t> winner(count), cells(count);
  const std::vector<double> wx = x.wide(), wdy = dy.wide();
  std::vector<double> wy(count), wdx(wx.size());
  cuda::max_pool_forward(d, s, {.x = x.in(), .y = y.out(), .winner = winner.data()}, stream());
  cuda::max_pool_forward(d, s, {.x = x.in(), .y = alone.out()}, stream());
  cuda::max_pool_backward(d, s, {.winner = winner.data(), .dy = dy.in(), .dx = dx.out()}, stream());
  reference::max_pool_forward<double>(d, s,
                                      {.x = wx.data(), .y = wy.data(), .winner = cells.data()});
  reference::max_pool_backward<double>(
      d, s, {.winner = cells.data(), .dy = wdy.data(), .dx = wdx.data()});
  EXPECT_EQ(winner, cells);
  EXPECT_EQ(alone, y);
  const std::vector<double> got = y.wide();
  for (size_t i = 0; i < count; ++i) {
    ASSERT_TRUE(got[i] == wy[i] || (std::isnan(got[i]) && std::isnan(wy[i]))) << i;
  }
  expect_near_or_nan(dx.wide(), wdx, tolerance(c.dy), "relu dx");
}

// Values from a small set, so that windows have several maxima, with a NaN and an infinity.
TEST(EmulatedImages, MaxPoolingInEveryFormat) {
  const Window windows[] = {{2, 2, 2, 2},
                            {3, 3, 2, 2, 1, 1, 1, 1},
                            {3, 3, 1, 1, 2, 1, 2, 1, 2, 1},
                            {2, 3, 3, 1, 0, 1, 1, 0, 1, 3},
                            {5, 4, 2, 3, 2, 0, 1, 3},
                            {17, 16, 1, 2, 8, 7, 8, 8}};  // more cells than a byte can number
  const std::pair<Format, Format> formats[] = {{Format::kF32, Format::kF32},
                                               {Format::kBf16, Format::kBf16},
                                               {Format::kF16, Format::kF16},
                                               {Format::kF32, Format::kBf16}};
  std::vector<PoolCase> cases;
  for (const Window& window : windows) {
    for (const auto& [x, dy] : formats) {
      for (const int64_t C : {3, 8, 24}) cases.push_back({{{2, C, 13, 11}, window}, true, x, dy});
      cases.push_back({{{1, 8, 11, 14}, window}, false, x, dy});
    }
  }
  for (const PoolCase& c : cases) {
    SCOPED_TRACE(::testing::PrintToString(c));
    const auto layout = [&](const ImageDims& d) {
      return c.channels_last ? ImageStrides::channels_last(d) : ImageStrides::row_major(d);
    };
    const PoolStrides s{layout(c.d.x), layout(c.d.y())};
    const int64_t x_count = c.d.x.elements(), y_count = c.d.y().elements();
    Tensor x(x_count, c.x, 30, 0), dy(y_count, c.dy, 31, 0), y(y_count, c.x), dx(x_count, c.dy);
    for (int64_t i = 0; i < x_count; ++i) x.set(i, std::round(4 * x.in()[i]));
    x.set(100, std::numeric_limits<float>::quiet_NaN());
    x.set(200, -std::numeric_limits<float>::infinity());
    x.set(201, std::numeric_limits<float>::infinity());
    auto workspace = testing::aligned_bytes(cuda::max_pool_backward_workspace_bytes(c.d));
    cuda::max_pool_forward(c.d, s, {.x = x.in(), .y = y.out()}, stream());
    cuda::max_pool_backward(c.d, s, {.x = x.in(), .dy = dy.in(), .dx = dx.out()},
                            {stream(), workspace.data()});
    const std::vector<double> wx = x.wide(), wdy = dy.wide();
    std::vector<double> wy(static_cast<size_t>(y_count)), wdx(wx.size());
    std::vector<uint8_t> cells(wy.size()), winner(wy.size(), 0xFF);
    const bool keeps = c.d.has_byte_cells();
    reference::max_pool_forward<double>(
        c.d, s, {.x = wx.data(), .y = wy.data(), .winner = keeps ? cells.data() : nullptr});
    reference::max_pool_backward<double>(c.d, s,
                                         {.x = wx.data(), .dy = wdy.data(), .dx = wdx.data()});
    if (keeps) {
      Tensor again(y_count, c.x), by_winner(x_count, c.dy);
      cuda::max_pool_forward(c.d, s, {.x = x.in(), .y = again.out(), .winner = winner.data()},
                             stream());
      EXPECT_EQ(again, y);
      EXPECT_EQ(winner, cells);
      cuda::max_pool_backward(
          c.d, s, {.winner = winner.data(), .dy = dy.in(), .dx = by_winner.out()}, stream());
      EXPECT_EQ(by_winner, dx);
      expect_relu_of_both(c, s, x, dy);
    }
    const std::vector<double> got = y.wide();
    for (size_t i = 0; i < wy.size(); ++i) {
      ASSERT_TRUE(got[i] == wy[i] || (std::isnan(got[i]) && std::isnan(wy[i]))) << i;
    }
    expect_near_or_nan(dx.wide(), wdx, tolerance(c.dy), "dx");
    if (::testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace trainyard::kernels
