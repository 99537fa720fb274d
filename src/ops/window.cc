#include "src/ops/window.h"

#include <algorithm>

namespace trainyard {
namespace {

constexpr int64_t kWindowMax = 65536;  // far above any practical size; prevents overflow of P and Q

std::string text_of(const std::vector<int64_t>& values) { return Shape(values).to_string(); }

bool is_dilated(const kernels::Window& w) { return w.height() != w.R || w.width() != w.S; }

/// Returns true if each of `count` windows along one dimension has a cell inside the image.
bool windows_meet(int64_t count, int64_t stride, int64_t pad, int64_t cells, int64_t dilation,
                  int64_t size) {
  for (int64_t p = 0; p < count; ++p) {
    const auto range = kernels::window_range(p * stride - pad, cells, dilation, size);
    if (range.begin >= range.end) return false;
  }
  return true;
}

void check_list(OpChecks& check, const Attributes& attributes, std::string_view name, size_t length,
                int64_t low) {
  if (!check.ok() || attributes.find(name) == nullptr) return;
  const auto values = attributes.get_ints(name, {});
  const bool in_range = std::all_of(values.begin(), values.end(),
                                    [&](int64_t v) { return v >= low && v <= kWindowMax; });
  check.require(values.size() == length && in_range, "ATTRIBUTE_OUT_OF_RANGE", name,
                text_of(values) + ", expected " + std::to_string(length) + " integers in " +
                    std::to_string(low) + ".." + std::to_string(kWindowMax));
}

}  // namespace

void check_window(OpChecks& check, const InferContext& c, bool kernel_required,
                  bool pads_below_kernel) {
  const Attributes& attributes = c.attributes();
  check.require(!kernel_required || attributes.find("kernel_shape") != nullptr, "ATTRIBUTE_MISSING",
                "kernel_shape", "this attribute is required, for example [2, 2]");
  check_list(check, attributes, "kernel_shape", 2, 1);
  check_list(check, attributes, "strides", 2, 1);
  check_list(check, attributes, "pads", 4, 0);
  check_list(check, attributes, "dilations", 2, 1);
  if (!check.ok()) return;
  if (!pads_below_kernel) return;
  const kernels::Window w = window_of(attributes);
  check.require(w.pad_top < w.height() && w.pad_bottom < w.height() && w.pad_left < w.width() &&
                    w.pad_right < w.width(),
                "ATTRIBUTE_OUT_OF_RANGE", "pads",
                text_of(attributes.get_ints("pads", {})) + ", expected values below kernel_shape " +
                    text_of({w.height(), w.width()}) + (is_dilated(w) ? " (dilated)" : ""));
}

kernels::Window window_of(const Attributes& attributes, int64_t R, int64_t S) {
  const auto kernel = attributes.get_ints("kernel_shape", {R, S});
  const auto strides = attributes.get_ints("strides", {1, 1});
  const auto pads = attributes.get_ints("pads", {0, 0, 0, 0});
  const auto dilations = attributes.get_ints("dilations", {1, 1});
  return {kernel.at(0), kernel.at(1), strides.at(0), strides.at(1),   pads.at(0),
          pads.at(1),   pads.at(2),   pads.at(3),    dilations.at(0), dilations.at(1)};
}

kernels::Window pool_window(const Attributes& attributes, const Shape& x) {
  kernels::Window w = window_of(attributes);
  if (attributes.get_int("ceil_mode", 0) == 0) return w;
  // Returns how much padding must be added at the end for one more window, if that window begins
  // inside the image or the padding before it; else 0.
  const auto missing = [](int64_t size, int64_t before, int64_t behind, int64_t kernel,
                          int64_t stride) {
    const int64_t room = size + before + behind - kernel;
    const int64_t next = (room / stride + 1) * stride;
    return room % stride != 0 && next < size + before ? next - room : 0;
  };
  w.pad_bottom += missing(x[2], w.pad_top, w.pad_bottom, w.height(), w.stride_h);
  w.pad_right += missing(x[3], w.pad_left, w.pad_right, w.width(), w.stride_w);
  return w;
}

void check_window_fits(OpChecks& check, const kernels::Window& w, const Shape& x) {
  if (!check.ok()) return;
  const int64_t height = x[2] + w.pad_top + w.pad_bottom;
  const int64_t width = x[3] + w.pad_left + w.pad_right;
  check.require(w.height() <= height && w.width() <= width, "SHAPE_MISMATCH", "kernel_shape",
                text_of({w.height(), w.width()}) + (is_dilated(w) ? " (dilated)" : "") +
                    " is larger than the image " + text_of({x[2], x[3]}) + " with its padding, " +
                    text_of({height, width}));
}

void check_pool_fits(OpChecks& check, const Attributes& attributes, const Shape& x) {
  if (!check.ok()) return;
  check_window_fits(check, window_of(attributes), x);
  if (!check.ok()) return;
  const kernels::Window w = pool_window(attributes, x);
  check.require(windows_meet(w.P(x[2]), w.stride_h, w.pad_top, w.R, w.dilation_h, x[2]) &&
                    windows_meet(w.Q(x[3]), w.stride_w, w.pad_left, w.S, w.dilation_w, x[3]),
                "SHAPE_MISMATCH", "dilations",
                text_of({w.dilation_h, w.dilation_w}) + " lead a window past the image " +
                    text_of({x[2], x[3]}) +
                    " with none of its cells inside, expected smaller ones or fewer pads");
}

Shape window_output(const kernels::Window& window, const Shape& x, int64_t channels) {
  return {x[0], channels, window.P(x[2]), window.Q(x[3])};
}

void check_input_shape(OpChecks& check, const InferContext& c) {
  if (!check.ok()) return;
  check.require(c.attributes().find("input_shape") != nullptr, "ATTRIBUTE_MISSING", "input_shape",
                "this attribute is required");
  if (!check.ok()) return;
  const Shape shape = input_shape_of(c.attributes());
  const bool positive =
      std::all_of(shape.dims().begin(), shape.dims().end(), [](int64_t d) { return d >= 1; });
  check.require(shape.rank() == 4 && positive && shape.fits(), "ATTRIBUTE_OUT_OF_RANGE",
                "input_shape",
                shape.to_string() + ", expected four dimensions [N, C, H, W] of at least 1");
}

Shape input_shape_of(const Attributes& attributes) {
  return Shape(attributes.get_ints("input_shape", {}));
}

kernels::ImageDims image_dims(const Shape& x) {
  TRAINYARD_CHECK(x.rank() == 4 || x.rank() == 2, "shape " + x.to_string() + " is not an image");
  return x.rank() == 4 ? kernels::ImageDims{x[0], x[1], x[2], x[3]}
                       : kernels::ImageDims{x[0], x[1], 1, 1};
}

}  // namespace trainyard
