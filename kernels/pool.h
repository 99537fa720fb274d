// kernels/pool.h: max, average and global average pooling.
//
//   max      y[n,c,p,q] = max over the window's cells inside the image; NaN beats every number
//            dx = dy at the first maximum of each window in the order r, s (NaN counts as maximum,
//            the last NaN of a window), 0 elsewhere; overlapping windows add up
//            with ReLU  y = max(0, that maximum), NaN stays NaN; a window that ReLU sets to 0 has
//            no winner
//   average  y[n,c,p,q] = (1/D) sum over the window's cells inside the image, D = R*S if
//            count_include_pad, else the number of cells inside
//   global   y[n,c] = (1/(H*W)) sum_{h,w} x[n,c,h,w]
#pragma once

#include <cstdint>

#include "kernels/contract.h"
#include "kernels/image.h"
#include "kernels/operands.h"

namespace trainyard::kernels {

/// The winner of a window that ReLU has set to 0; its gradient is discarded.
constexpr uint8_t kNoCell = 255;

struct PoolDims {
  ImageDims x;  // [N, C, H, W]
  Window window;
  bool count_include_pad = false;  // average only
  bool relu = false;               // max only: ReLU of the maximum
  ImageDims y() const { return {x.N, x.C, window.P(x.H), window.Q(x.W)}; }
  /// Returns whether the number of a cell in the window, r * S + s, fits one byte.
  bool has_byte_cells() const { return window.R * window.S <= (relu ? kNoCell : 256); }
};

/// Strides of an image and of its pooled image; their gradients have the same strides.
struct PoolStrides {
  ImageStrides x, y;
};

template <typename T>
struct MaxPoolOperands {
  InOf<T> x;                  // [N, C, H, W]
  OutOf<T> y;                 // [N, C, P, Q]
  uint8_t* winner = nullptr;  // [N, C, P, Q], strides of y, optional: the number of the cell with
                              // the window's maximum
};

/// Exactly one of x and winner is given.
template <typename T>
struct MaxPoolGradOperands {
  InOf<T> x = {};                   // [N, C, H, W]
  const uint8_t* winner = nullptr;  // [N, C, P, Q]; needs PoolDims::has_byte_cells()
  InOf<T> dy;                       // [N, C, P, Q]
  OutOf<T> dx;                      // [N, C, H, W]
};

template <typename T>
void check(const PoolDims& d, const MaxPoolOperands<T>& o) {
  Contract("max_pool_forward")
      .size("pooled values", d.y().elements())
      .given("x", o.x)
      .given("y", o.y)
      .holds(o.winner == nullptr || d.has_byte_cells(), "winner",
             "cannot number the cells of such windows");
}
template <typename T>
void check(const PoolDims& d, const MaxPoolGradOperands<T>& o) {
  Contract("max_pool_backward")
      .size("pooled values", d.y().elements())
      .holds(static_cast<bool>(o.x) != (o.winner != nullptr), "winner",
             "or x must be given, and only one of them")
      .holds(o.winner == nullptr || d.has_byte_cells(), "winner",
             "cannot number the cells of such windows")
      .holds(o.winner != nullptr || !d.relu, "winner", "is missing after ReLU")
      .given("dy", o.dy)
      .given("dx", o.dx);
}
/// For average pools, `read` is the input of the pass and `written` its output.
template <typename X, typename Y>
void check_average(const ImageDims& d, const X& read, const Y& written) {
  Contract("an average pool")
      .size("values", d.elements())
      .given("input", read)
      .given("output", written);
}

/// Shapes    average pool: x, dx [N, C, H, W], y, dy [N, C, P, Q] by strides; global: y [N, C].
/// Writes    all of each output (assigned). No output is read, so all may be uninitialized.
/// Aliasing  none.
/// Numerics  sums run in the order r, s (global: h, w) in T; max is exact. One thread computes an
///           image, so results are bit-identical for any team size.
/// Errors    none: the op has checked that each window overlaps the image.
namespace reference {
template <typename T>
void max_pool_forward(const PoolDims& d, const PoolStrides& s, const MaxPoolOperands<T>& o,
                      Run<T> run = {});
template <typename T>
void max_pool_backward(const PoolDims& d, const PoolStrides& s, const MaxPoolGradOperands<T>& o,
                       Run<T> run = {});
template <typename T>
void average_pool_forward(const PoolDims& d, const PoolStrides& s, const T* x, T* y,
                          Run<T> run = {});
template <typename T>
void average_pool_backward(const PoolDims& d, const PoolStrides& s, const T* dy, T* dx,
                           Run<T> run = {});
template <typename T>
void global_average_pool_forward(const ImageDims& d, const ImageStrides& xs, const T* x, T* y,
                                 Run<T> run = {});
template <typename T>
void global_average_pool_backward(const ImageDims& d, const ImageStrides& xs, const T* dy, T* dx,
                                  Run<T> run = {});
}  // namespace reference

/// Computes the same as namespace reference. Channels-last is vectorized over C; other strides use
/// a scalar loop.
namespace cpu {
void max_pool_forward(const PoolDims& d, const PoolStrides& s, const MaxPoolOperands<float>& o,
                      Run run);
void max_pool_backward(const PoolDims& d, const PoolStrides& s, const MaxPoolGradOperands<float>& o,
                       Run run);
void average_pool_forward(const PoolDims& d, const PoolStrides& s, const float* x, float* y,
                          Run run);
void average_pool_backward(const PoolDims& d, const PoolStrides& s, const float* dy, float* dx,
                           Run run);
void global_average_pool_forward(const ImageDims& d, const ImageStrides& xs, const float* x,
                                 float* y, Run run);
void global_average_pool_backward(const ImageDims& d, const ImageStrides& xs, const float* dy,
                                  float* dx, Run run);
}  // namespace cpu

namespace cuda {
void max_pool_forward(const PoolDims& d, const PoolStrides& s, const MaxPoolOperands<Views>& o,
                      Run run);
/// Only needed if `winner` is not given.
int64_t max_pool_backward_workspace_bytes(const PoolDims& d);
void max_pool_backward(const PoolDims& d, const PoolStrides& s, const MaxPoolGradOperands<Views>& o,
                       Run run);
void average_pool_forward(const PoolDims& d, const PoolStrides& s, In x, Out y, Run run);
void average_pool_backward(const PoolDims& d, const PoolStrides& s, In dy, Out dx, Run run);
int64_t global_average_pool_workspace_bytes(const ImageDims& d, const ImageStrides& xs);
void global_average_pool_forward(const ImageDims& d, const ImageStrides& xs, In x, Out y, Run run);
void global_average_pool_backward(const ImageDims& d, const ImageStrides& xs, In dy, Out dx,
                                  Run run);
}  // namespace cuda

}  // namespace trainyard::kernels
