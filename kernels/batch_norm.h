// kernels/batch_norm.h: batch normalisation over N, H, W for each channel, M = N*H*W values.
//
//   mean[c]    = (1/M) sum x,   var[c] = (1/M) sum (x - mean)^2      (biased)
//   inv_std[c] = 1 / sqrt(var + epsilon)
//   y          = (x - mean) * inv_std * scale + b
//   running_mean = momentum * running_mean + (1 - momentum) * mean
//   running_var  = momentum * running_var  + (1 - momentum) * var * M / (M - 1)    (unbiased)
// momentum is the share that is kept (ONNX); PyTorch's momentum is 1 minus it. ONNX's reference
// keeps the biased variance; we follow PyTorch, whose results ours are compared with.
//
//   xhat = (x - mean) * inv_std
//   db = sum dy,   dscale = sum dy * xhat
//   dx = scale * inv_std * (dy - db/M - xhat * dscale/M)
//
// Source: Ioffe, Szegedy, "Batch Normalization" (2015), algorithm 1 and section 3.
#pragma once

#include <cstdint>

#include "kernels/image.h"

namespace trainyard::kernels {

struct BatchNormDims {
  ImageDims x;  // [N, C, H, W]; rank 2 is H = W = 1
  double epsilon = 1e-5;
  double momentum = 0.9;  // share of the running value that is kept
  int64_t values_per_channel() const { return x.N * x.H * x.W; }
};

/// Shapes    x, y, dy, dx [N, C, H, W], all with the same strides; everything else [C].
/// Writes    all of y, mean, inv_std, dx, dscale, db (assigned); running_* are read and updated.
///           dx, dscale, db may be nullptr if not wanted.
/// Aliasing  y may be x in inference; dx may be dy.
/// Numerics  two passes (mean, then squared deviations), so no cancellation for large means.
/// Errors    none of its own: the op has checked M >= 2 for training.
namespace reference {
template <typename T>
void batch_norm_training(const BatchNormDims& d, const ImageStrides& s, const T* x, const T* scale,
                         const T* b, T* running_mean, T* running_var, T* y, T* mean, T* inv_std);
template <typename T>
void batch_norm_inference(const BatchNormDims& d, const ImageStrides& s, const T* x, const T* scale,
                          const T* b, const T* running_mean, const T* running_var, T* y);
template <typename T>
void batch_norm_backward(const BatchNormDims& d, const ImageStrides& s, const T* x, const T* dy,
                         const T* scale, const T* mean, const T* inv_std, T* dx, T* dscale, T* db);
}  // namespace reference

/// As above; sums go over fixed blocks of rows that are then added in double in their order, so the
/// thread count changes no bit. `workspace` is 64-byte aligned.
namespace cpu {
class Team;  // kernels/cpu/team.h
int64_t batch_norm_workspace_bytes(const BatchNormDims& d);
void batch_norm_training(const BatchNormDims& d, const ImageStrides& s, const float* x,
                         const float* scale, const float* b, float* running_mean,
                         float* running_var, float* y, float* mean, float* inv_std, void* workspace,
                         Team& team);
void batch_norm_inference(const BatchNormDims& d, const ImageStrides& s, const float* x,
                          const float* scale, const float* b, const float* running_mean,
                          const float* running_var, float* y, void* workspace, Team& team);
void batch_norm_backward(const BatchNormDims& d, const ImageStrides& s, const float* x,
                         const float* dy, const float* scale, const float* mean,
                         const float* inv_std, float* dx, float* dscale, float* db, void* workspace,
                         Team& team);
}  // namespace cpu

}  // namespace trainyard::kernels
