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
// Followed by max(0, .), and by the sum of a residual before it, in the same sweeps:
//   y = max(0, (x - mean) * inv_std * scale + b + residual)
// Its gradient first takes g = dy where y > 0, else 0, and goes on with g for dy. What y was is
// read from y, or, where there was no residual, found again from x: that saves reading y.
//
// Source: Ioffe, Szegedy, "Batch Normalization" (2015), algorithm 1 and section 3.
#pragma once

#include <cstdint>

#include "kernels/cuda/view.h"
#include "kernels/image.h"

namespace trainyard::kernels {

struct BatchNormDims {
  ImageDims x;  // [N, C, H, W]; rank 2 is H = W = 1
  double epsilon = 1e-5;
  double momentum = 0.9;  // share of the running value that is kept
  int64_t values_per_channel() const { return x.N * x.H * x.W; }
};

/// Shapes    x, y, dy, dx, residual, g [N, C, H, W], all with the same strides; everything else
/// [C]. Writes    all of y, mean, inv_std, dx, dscale, db (assigned); running_* are read and
/// updated.
///           dx, dscale, db, g may be nullptr if not wanted, residual if there is none. Exactly one
///           of `y` and `b` of batch_norm_relu_backward is given.
/// Aliasing  y may be x in inference and replay; dx may be dy. In batch_norm_relu_backward one of
/// dx
///           and g may be dy, and one may be y.
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
/// Training's y once more, from the statistics that it saved; `relu` and `residual` as they were.
template <typename T>
void batch_norm_replay(const BatchNormDims& d, const ImageStrides& s, const T* x, const T* scale,
                       const T* b, const T* mean, const T* inv_std, const T* residual, bool relu,
                       T* y);
/// y = max(0, y + residual): behind training or inference.
template <typename T>
void add_relu(int64_t count, const T* residual, T* y);
/// `spare` holds as many values as x; it is used if neither dx nor g is wanted.
template <typename T>
void batch_norm_relu_backward(const BatchNormDims& d, const ImageStrides& s, const T* x,
                              const T* dy, const T* scale, const T* mean, const T* inv_std,
                              const T* b, const T* y, T* dx, T* dscale, T* db, T* g, T* spare);
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

/// The bits are those of the three steps one after another.
void batch_norm_relu_training(const BatchNormDims& d, const ImageStrides& s, const float* x,
                              const float* scale, const float* b, float* running_mean,
                              float* running_var, const float* residual, float* y, float* mean,
                              float* inv_std, void* workspace, Team& team);
void batch_norm_relu_inference(const BatchNormDims& d, const ImageStrides& s, const float* x,
                               const float* scale, const float* b, const float* running_mean,
                               const float* running_var, const float* residual, float* y,
                               void* workspace, Team& team);
void batch_norm_replay(const BatchNormDims& d, const ImageStrides& s, const float* x,
                       const float* scale, const float* b, const float* mean, const float* inv_std,
                       const float* residual, bool relu, float* y, void* workspace, Team& team);
int64_t batch_norm_relu_backward_workspace_bytes(const BatchNormDims& d, const ImageStrides& s,
                                                 bool wants_dx_or_g);
void batch_norm_relu_backward(const BatchNormDims& d, const ImageStrides& s, const float* x,
                              const float* dy, const float* scale, const float* mean,
                              const float* inv_std, const float* b, const float* y, float* dx,
                              float* dscale, float* db, float* g, void* workspace, Team& team);
}  // namespace cpu

/// As above; `residual` may be left out, `relu` says whether max(0, .) follows. x is read twice:
/// its statistics are joined from short pieces, each by sums about its first value, which lose
/// nothing to large means. y is a x + c with a = inv_std scale and c = b - mean a, whose rounding
/// adds 2^-24 |mean a| at most; dx is made of g and x in the same way (docs/numerics.md).
namespace cuda {  // asynchronous on `stream`; a launch that failed is told by cudaPeekAtLastError()
int64_t batch_norm_workspace_bytes(const BatchNormDims& d, const ImageStrides& s);
void batch_norm_training(const BatchNormDims& d, const ImageStrides& s, In x, const float* scale,
                         const float* b, float* running_mean, float* running_var, In residual,
                         bool relu, Out y, float* mean, float* inv_std, void* workspace,
                         CUstream_st* stream);
void batch_norm_inference(const BatchNormDims& d, const ImageStrides& s, In x, const float* scale,
                          const float* b, const float* running_mean, const float* running_var,
                          In residual, bool relu, Out y, void* workspace, CUstream_st* stream);
void batch_norm_replay(const BatchNormDims& d, const ImageStrides& s, In x, const float* scale,
                       const float* b, const float* mean, const float* inv_std, In residual,
                       bool relu, Out y, CUstream_st* stream);
/// With `relu` exactly one of y and b is given, without it neither is. `skip`, which may be left
/// out and needs `relu`, is added to dy first, and the sum is rounded as dx and g are: one of these
/// is wanted then, and either may be dy or skip, but not y.
void batch_norm_backward(const BatchNormDims& d, const ImageStrides& s, In x, In dy, In skip,
                         const float* scale, const float* mean, const float* inv_std, bool relu,
                         const float* b, In y, Out dx, float* dscale, float* db, Out g,
                         void* workspace, CUstream_st* stream);
}  // namespace cuda

}  // namespace trainyard::kernels
