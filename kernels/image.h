// kernels/image.h: the memory order of a rank-4 activation [N, C, H, W].
//
// Kernels take strides rather than a layout flag, so that one loop serves both row-major (c, then
// pixels) and channels-last (pixels, then c) images; fast paths check is_channels_last().
#pragma once

#include <cstdint>

namespace trainyard::kernels {

struct ImageDims {
  int64_t N, C, H, W;
  constexpr int64_t pixels() const { return H * W; }
  constexpr int64_t elements() const { return N * C * H * W; }
};

/// Distance in elements between neighbours of each dimension.
struct ImageStrides {
  int64_t n, c, h, w;

  static constexpr ImageStrides row_major(const ImageDims& d) {
    return {d.C * d.H * d.W, d.H * d.W, d.W, 1};
  }
  static constexpr ImageStrides channels_last(const ImageDims& d) {
    return {d.C * d.H * d.W, 1, d.W * d.C, d.C};
  }
  constexpr bool is_channels_last(const ImageDims& d) const {
    return c == 1 && w == d.C && h == d.W * d.C;
  }
  constexpr int64_t at(int64_t in, int64_t ic, int64_t ih, int64_t iw) const {
    return in * n + ic * c + ih * h + iw * w;
  }
};

/// A window that slides over H and W, for convolutions and pooling. The output has size P x Q.
struct Window {
  int64_t R, S;
  int64_t stride_h = 1, stride_w = 1;
  int64_t pad_top = 0, pad_left = 0, pad_bottom = 0, pad_right = 0;
  int64_t dilation_h = 1, dilation_w = 1;  // distance between neighbouring cells

  /// Returns the rows and columns that the window spans, dilation included.
  constexpr int64_t height() const { return (R - 1) * dilation_h + 1; }
  constexpr int64_t width() const { return (S - 1) * dilation_w + 1; }
  constexpr int64_t P(int64_t H) const {
    return (H + pad_top + pad_bottom - height()) / stride_h + 1;
  }
  constexpr int64_t Q(int64_t W) const {
    return (W + pad_left + pad_right - width()) / stride_w + 1;
  }
};

/// The cells of a window that are inside the image, along one axis. The window has `count` cells,
/// at pixels start, start + dilation, ...; the cells [begin, end) are inside an image of `size`
/// pixels.
struct WindowRange {
  int64_t begin, end;
};
constexpr WindowRange window_range(int64_t start, int64_t count, int64_t dilation, int64_t size) {
  const int64_t begin = start < 0 ? (dilation - 1 - start) / dilation : 0;
  const int64_t inside = start < size ? (size - start + dilation - 1) / dilation : 0;
  return {begin, inside < count ? inside : count};
}

}  // namespace trainyard::kernels
