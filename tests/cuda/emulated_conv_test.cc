// Catches: a convolution of our own kernels (kernels/cuda/direct_conv.h) that is wrong for some
// shape, layout or format, changes its bits from run to run, or loses a NaN.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <ostream>
#include <vector>

#include "kernels/cuda/direct_conv.h"
#include "kernels/math/philox.h"
#include "tests/cuda/aligned_bytes.h"
#include "tests/cuda/emulated_device.h"

namespace trainyard::kernels {
namespace {

using cuda::Format;
using cuda::In;
using cuda::Out;
using testing::stream;

/// Elements of one format, which start as NaN.
class ConvTensor {
 public:
  ConvTensor(int64_t count, Format format)
      : count_(count),
        format_(format),
        bytes_(static_cast<size_t>(count * cuda::element_bytes(format)), std::byte{0xFF}) {}
  ConvTensor(int64_t count, Format format, uint64_t seed) : ConvTensor(count, format) {
    for (int64_t i = 0; i < count; ++i) {
      const double u = math::philox_u32(seed, 0, 7, static_cast<uint64_t>(i)) / 4294967296.0;
      set(i, static_cast<float>(2 * u - 1));
    }
  }
  Out out() { return {bytes_.data(), format_}; }
  In in() const { return {bytes_.data(), format_}; }
  void set(int64_t i, float v) { out().set(i, v); }
  std::vector<double> wide() const { return rounded_to(format_); }
  /// The values as a kernel with operands in `format` reads them.
  std::vector<double> rounded_to(Format format) const {
    ConvTensor one(1, format);
    std::vector<double> v;
    for (int64_t i = 0; i < count_; ++i) {
      one.set(0, in()[i]);
      v.push_back(one.in()[0]);
    }
    return v;
  }
  bool operator==(const ConvTensor& other) const { return bytes_ == other.bytes_; }

 private:
  int64_t count_;
  Format format_;
  std::vector<std::byte> bytes_;
};

struct ConvCase {
  ConvDims d;
  Format image = Format::kF32, operands = Format::kF32;  // the types of x, and of w, y and dy
  bool channels_last = true;
};
std::ostream& operator<<(std::ostream& out, const ConvCase& c) {
  const Window& w = c.d.window;
  return out << "[" << c.d.x.N << ", " << c.d.x.C << ", " << c.d.x.H << ", " << c.d.x.W << "] to "
             << c.d.K << ", " << w.R << "x" << w.S << ", pads " << w.pad_top << w.pad_left
             << w.pad_bottom << w.pad_right << (c.channels_last ? " channels-last" : " row-major")
             << ", formats " << static_cast<int>(c.image) << " " << static_cast<int>(c.operands);
}

std::vector<ConvDims> dims() {
  std::vector<ConvDims> all;
  const auto add = [&](ImageDims x, int64_t K, Window w) { all.push_back({x, K, w}); };
  add({2, 1, 28, 28}, 20, {5, 5});                     // LeNet-5: several blocks for an image
  add({2, 20, 12, 12}, 50, {5, 5});                    // and its gradients: blocks of channels
  add({1, 1, 3, 2}, 1, {3, 2});                        // a single output element
  add({3, 3, 8, 7}, 5, {3, 3, 1, 1, 1, 1, 1, 1});      // odd sizes
  add({2, 3, 6, 5}, 9, {2, 4, 1, 1, 1, 3, 0, 2});      // unequal pads
  add({1, 2, 4, 4}, 3, {2, 2, 1, 1, 3, 2, 4, 5});      // pads wider than the filter
  add({1, 56, 9, 9}, 33, {3, 3, 1, 1, 1, 1, 1, 1});    // channels in several parts in F32
  add({1, 256, 3, 4}, 70, {1, 2});                     // more filters than a block computes
  add({1, 4, 32, 32}, 8, {11, 11, 1, 1, 5, 5, 5, 5});  // the largest filters
  add({131, 2, 3, 3}, 2, {3, 3, 1, 1, 1, 1, 1, 1});    // slices that consist of several pieces
  return all;
}

std::vector<ConvCase> cases() {
  std::vector<ConvCase> all;
  const std::pair<Format, Format> formats[] = {{Format::kF32, Format::kF32},
                                               {Format::kBf16, Format::kBf16},
                                               {Format::kF16, Format::kF16},
                                               {Format::kF32, Format::kBf16}};
  for (const ConvDims& d : dims()) {
    for (const auto& [image, operands] : formats) {
      for (const bool last : {true, false}) all.push_back({d, image, operands, last});
    }
  }
  return all;
}

/// A case's tensors, and the reference's results from the values that the kernels read.
struct ConvRun {
  const ConvCase& c;
  const ConvDims& d = c.d;
  ImageDims y_dims = d.y();
  ImageStrides xs = strides(d.x), ys = strides(y_dims);
  ConvTensor x{d.x.elements(), c.image, 1}, w{d.weight_elements(), c.operands, 2},
      dy{y_dims.elements(), c.operands, 3}, bias{d.K, Format::kF32, 4};
  ConvTensor y{y_dims.elements(), c.operands}, dx{d.x.elements(), c.image},
      dw{d.weight_elements(), Format::kF32}, db{d.K, Format::kF32};

  explicit ConvRun(const ConvCase& of) : c(of) {}
  ImageStrides strides(const ImageDims& i) const {
    return c.channels_last ? ImageStrides::channels_last(i) : ImageStrides::row_major(i);
  }
  void forward(bool with_bias, bool relu) {
    cuda::direct_conv_forward(
        d, c.channels_last,
        {.x = x.in(),
         .w = w.in(),
         .bias = with_bias ? static_cast<const float*>(bias.in().data) : nullptr,
         .relu = relu,
         .y = y.out()},
        stream());
  }
  void backward() {
    cuda::direct_conv_backward_data(d, c.channels_last, dy.in(), w.in(), dx.out(), stream());
    auto workspace =
        testing::aligned_bytes(cuda::direct_conv_backward_weights_workspace_bytes(d, c.operands));
    cuda::direct_conv_backward_weights(
        d, c.channels_last,
        {.x = x.in(), .dy = dy.in(), .dw = dw.out(), .db = static_cast<float*>(db.out().data)},
        {stream(), workspace.data()});
  }
};

/// Allows for one rounding to the result's format, and for F32 sums.
void expect_near_conv(const ConvTensor& got, const std::vector<double>& expected, double step,
                      const char* name) {
  const std::vector<double> values = got.wide();
  ASSERT_EQ(values.size(), expected.size());
  double scale = 1;
  for (const double v : expected) scale = std::max(scale, std::abs(v));
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_LE(std::abs(values[i] - expected[i]), step * std::abs(expected[i]) + 1e-5 * scale)
        << name << "[" << i << "] " << values[i] << ", expected " << expected[i];
  }
}
double step_of(Format format) {
  return format == Format::kF32 ? 0 : format == Format::kBf16 ? 0x1p-8 : 0x1p-11;
}

TEST(DirectConv, ForwardIsTheReference) {
  for (const ConvCase& c : cases()) {
    SCOPED_TRACE(c);
    ASSERT_TRUE(cuda::supports_direct_conv(c.d));
    for (const auto& [with_bias, relu] : {std::pair{false, false}, {true, false}, {true, true}}) {
      ConvRun r(c);
      const std::vector<double> x = r.x.rounded_to(c.operands), w = r.w.wide(),
                                bias = r.bias.wide();
      std::vector<double> y(static_cast<size_t>(r.y_dims.elements()));
      reference::conv_forward(c.d, r.xs, x.data(), w.data(), with_bias ? bias.data() : nullptr,
                              r.ys, y.data());
      for (double& v : y) v = relu ? std::max(v, 0.0) : v;
      r.forward(with_bias, relu);
      expect_near_conv(r.y, y, step_of(c.operands), "y");
    }
  }
}

TEST(DirectConv, GradientsAreTheReferences) {
  for (const ConvCase& c : cases()) {
    SCOPED_TRACE(c);
    ConvRun r(c);
    const std::vector<double> x = r.x.rounded_to(c.operands), w = r.w.wide(), dy = r.dy.wide();
    std::vector<double> dx(x.size()), dw(w.size()), db(static_cast<size_t>(c.d.K));
    reference::conv_backward_data(c.d, r.ys, dy.data(), w.data(), r.xs, dx.data());
    reference::conv_backward_weights<double>(c.d, r.xs, x.data(), r.ys, dy.data(), dw.data(),
                                             db.data());
    r.backward();
    expect_near_conv(r.dx, dx, step_of(c.image), "dx");
    expect_near_conv(r.dw, dw, 0, "dw");
    expect_near_conv(r.db, db, 0, "db");
  }
}

// The emulator runs threads in another order each time, so a race changes the bits.
TEST(DirectConv, RepeatsBitByBit) {
  for (const Format format : {Format::kF32, Format::kBf16}) {
    const ConvCase c{{{3, 6, 13, 11}, 20, {3, 3, 1, 1, 1, 1, 1, 1}}, format, format};
    ConvRun first(c), second(c);
    for (ConvRun* r : {&first, &second}) {
      r->forward(true, true);
      r->backward();
    }
    EXPECT_EQ(first.y, second.y);
    EXPECT_EQ(first.dx, second.dx);
    EXPECT_EQ(first.dw, second.dw);
    EXPECT_EQ(first.db, second.db);
  }
}

// A NaN also spreads no further than the windows that contain it.
TEST(DirectConv, NanGoesThroughRelu) {
  for (const Format format : {Format::kF32, Format::kBf16, Format::kF16}) {
    const ConvCase c{{{2, 3, 6, 6}, 4, {3, 3, 1, 1, 1, 1, 1, 1}}, format, format};
    ConvRun r(c);
    r.x.set(r.xs.at(1, 2, 0, 0), std::numeric_limits<float>::quiet_NaN());
    r.forward(true, true);
    const std::vector<double> y = r.y.wide();
    for (int64_t n = 0; n < 2; ++n) {
      for (int64_t p = 0; p < 6; ++p) {
        for (int64_t q = 0; q < 6; ++q) {
          for (int64_t k = 0; k < 4; ++k) {
            EXPECT_EQ(std::isnan(y[static_cast<size_t>(r.ys.at(n, k, p, q))]),
                      n == 1 && p < 2 && q < 2);
          }
        }
      }
    }
  }
}

TEST(DirectConv, LeavesLargeProblemsToTheLibrary) {
  const ConvDims good{{2, 4, 8, 8}, 4, {3, 3, 1, 1, 1, 1, 1, 1}};
  EXPECT_TRUE(cuda::supports_direct_conv(good));
  std::vector<ConvDims> bad(9, good);
  bad[0].window.stride_h = 2;
  bad[1].window.dilation_w = 2;
  bad[2].group = 2;
  bad[3].x.W = 33;
  bad[4].window = {1, 1};  // 1x1 filters are a product
  bad[5].window = {12, 1, 1, 1, 6, 0, 6, 0};
  bad[6].x.C = 57;
  bad[7].x.N = 1 << 20;
  bad[8].window.pad_right = 30;  // the output would be wider than 32 pixels
  for (size_t i = 0; i < bad.size(); ++i) EXPECT_FALSE(cuda::supports_direct_conv(bad[i])) << i;
}

}  // namespace
}  // namespace trainyard::kernels
