// kernels/layer_norm.h: normalization of each row of a [rows, width] matrix.
//
// Layer:  mean = (1/W) sum x,  inv_std = 1 / sqrt((1/W) sum (x - mean)^2 + epsilon)
//         xhat = (x - mean) * inv_std,   y = xhat * scale + b
// RMS:    inv_std = 1 / sqrt((1/W) sum x^2 + epsilon),   xhat = x * inv_std,   y = xhat * scale
//
//         g = dy * scale
// Layer:  dx = inv_std * (g - (1/W) sum g - xhat * (1/W) sum g * xhat)
// RMS:    dx = inv_std * (g - xhat * (1/W) sum g * xhat)
//         dscale = sum over rows dy * xhat,   db = sum over rows dy
//
// Sources: Ba, Kiros, Hinton, "Layer Normalization" (2016); Zhang, Sennrich, "Root Mean Square
// Layer Normalization" (2019).
//
/// Writes    all of each output that is given, assigned.
/// Aliasing  y may be x; dx may be dy.
/// Numerics  two passes (mean, then squared deviations), so no cancellation for large means.
#pragma once

#include <cstdint>

#include "kernels/contract.h"
#include "kernels/dropout.h"
#include "kernels/operands.h"

namespace trainyard::kernels {

struct LayerNormDims {
  int64_t rows, width;  // both >= 1
  double epsilon = 1e-5;
  bool rms = false;  // the RMS form, without mean and b
};

template <typename T>
struct LayerNormOperands {
  InOf<T> x;                       // [rows, width]
  InOf<T> scale, b = {};           // [width]; b is optional, and nullptr in the RMS form
  OutOf<T> y;                      // [rows, width]
  NumberOf<T>* mean = nullptr;     // [rows], optional; nullptr in the RMS form
  NumberOf<T>* inv_std = nullptr;  // [rows], optional
};

template <typename T>
struct LayerNormGradOperands {
  InOf<T> x, scale;                   // [rows, width], [width]
  const NumberOf<T>* mean = nullptr;  // [rows]; nullptr in the RMS form
  const NumberOf<T>* inv_std;         // [rows]
  InOf<T> dy;                         // [rows, width]
  OutOf<T> dx = {};                   // [rows, width], optional
  OutOf<T> dscale = {}, db = {};      // [width], optional
};

template <typename T>
void check(const LayerNormDims& d, const LayerNormOperands<T>& o) {
  Contract("layer_norm_forward")
      .size("rows", d.rows)
      .size("width", d.width)
      .given("x", o.x)
      .given("scale", o.scale)
      .given("y", o.y)
      .holds(!d.rms || !o.b, "b", "must be null in the RMS form")
      .holds(!d.rms || o.mean == nullptr, "mean", "must be null in the RMS form");
}
template <typename T>
void check(const LayerNormDims& d, const LayerNormGradOperands<T>& o) {
  Contract("layer_norm_backward")
      .size("rows", d.rows)
      .size("width", d.width)
      .given("x", o.x)
      .given("scale", o.scale)
      .given("inv_std", o.inv_std)
      .given("dy", o.dy)
      .holds(d.rms == (o.mean == nullptr), "mean",
             "must be given in the layer form, and only there");
}

namespace reference {  // T is float or double
template <typename T>
void layer_norm_forward(const LayerNormDims& d, const LayerNormOperands<T>& o, Run<T> run = {});
template <typename T>
void layer_norm_backward(const LayerNormDims& d, const LayerNormGradOperands<T>& o,
                         Run<T> run = {});
}  // namespace reference

/// Sums over rows run over fixed blocks, whose sums are added in order: results are bit-identical
/// for any team size.
namespace cpu {
void layer_norm_forward(const LayerNormDims& d, const LayerNormOperands<float>& o, Run run);
int64_t layer_norm_backward_workspace_bytes(const LayerNormDims& d);
void layer_norm_backward(const LayerNormDims& d, const LayerNormGradOperands<float>& o, Run run);
}  // namespace cpu

/// Launches: forward 1; backward 1 for dx, 2 for dscale and db, and 2 for all of them if rows are
/// aligned for load4 and have at most 6,016 elements, else 3.
namespace cuda {
/// An optional dropout of the forward pass's `skip` before it is added.
struct SkipDropout {
  DropoutParams params{};         // params.count is rows * width
  const int64_t* step = nullptr;  // nullptr: no dropout
};
/// Forward normalizes sum = x + skip instead of x. y and sum may alias x or skip.
struct SkipOperands {
  In skip = {};  // [rows, width]; empty: x is normalized, and the other members are not used
  Out sum = {};  // [rows, width]
  SkipDropout dropout = {};
};
/// Backward adds skip to dx; dz is dropout(dx), with the mask of the forward pass. dz may alias x,
/// dy or skip.
struct SkipGradOperands {
  In skip = {};  // [rows, width], optional
  SkipDropout dropout = {};
  Out dz = {};  // [rows, width], only with a dropout
};
void layer_norm_forward(const LayerNormDims& d, const LayerNormOperands<Views>& o, Run run,
                        const SkipOperands& skip = {});
int64_t layer_norm_backward_workspace_bytes(const LayerNormDims& d);
void layer_norm_backward(const LayerNormDims& d, const LayerNormGradOperands<Views>& o, Run run,
                         const SkipGradOperands& skip = {});
}  // namespace cuda

}  // namespace trainyard::kernels
