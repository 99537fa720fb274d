// kernels/layer_norm.h: normalisation of each row of a [rows, width] matrix by itself.
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
/// Shapes    x, y, dy, dx [rows, width]; scale, b, dscale, db [width]; mean, inv_std [rows].
/// Writes    all of each output that is not null, assigned. b, dx, dscale, db may be nullptr; mean
///           is nullptr in the RMS form, and mean and inv_std may both be where nobody keeps them.
/// Aliasing  y may be x; dx may be dy.
/// Numerics  two passes (mean, then squared deviations), so no cancellation for large means.
#pragma once

#include <cstdint>

#include "kernels/cuda/view.h"
#include "kernels/dropout.h"

namespace trainyard::kernels {

struct LayerNormDims {
  int64_t rows, width;  // both >= 1
  double epsilon = 1e-5;
  bool rms = false;  // the RMS form: no mean, no b
};

namespace reference {  // T is float or double
template <typename T>
void layer_norm_forward(const LayerNormDims& d, const T* x, const T* scale, const T* b, T* y,
                        T* mean, T* inv_std);
template <typename T>
void layer_norm_backward(const LayerNormDims& d, const T* x, const T* scale, const T* mean,
                         const T* inv_std, const T* dy, T* dx, T* dscale, T* db);
}  // namespace reference

/// Sums over rows go over fixed blocks whose sums are added in their order, so the thread count
/// changes no bit. `workspace` is 64-byte aligned.
namespace cpu {
class Team;  // kernels/cpu/team.h
void layer_norm_forward(const LayerNormDims& d, const float* x, const float* scale, const float* b,
                        float* y, float* mean, float* inv_std, Team& team);
int64_t layer_norm_backward_workspace_bytes(const LayerNormDims& d);
void layer_norm_backward(const LayerNormDims& d, const float* x, const float* scale,
                         const float* mean, const float* inv_std, const float* dy, float* dx,
                         float* dscale, float* db, void* workspace, Team& team);
}  // namespace cpu

/// Launches: forward 1; backward 1 for dx and 2 for dscale and db. Asynchronous on `stream`; a
/// launch that failed is told by cudaPeekAtLastError().
/// With `skip`, as x: forward normalises sum = x + skip, which it writes (y and sum may be x or
/// skip), and backward adds skip to dx. With `dropout` forward adds what that keeps of skip, and
/// backward writes what it keeps of dx to dz, which may be x, dy or skip.
namespace cuda {
struct SkipDropout {
  DropoutParams params{};         // count: rows * width
  const int64_t* step = nullptr;  // nullptr: none
};
void layer_norm_forward(const LayerNormDims& d, In x, In scale, In b, Out y, float* mean,
                        float* inv_std, CUstream_st* stream, In skip = {}, Out sum = {},
                        const SkipDropout& dropout = {});
int64_t layer_norm_backward_workspace_bytes(const LayerNormDims& d);
void layer_norm_backward(const LayerNormDims& d, In x, In scale, const float* mean,
                         const float* inv_std, In dy, Out dx, Out dscale, Out db, void* workspace,
                         CUstream_st* stream, In skip = {}, const SkipDropout& dropout = {},
                         Out dz = {});
}  // namespace cuda

}  // namespace trainyard::kernels
