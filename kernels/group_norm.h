// kernels/group_norm.h: normalisation of each group of channels of each sample by itself, over the
// M = C/G * H * W values of the group. As many groups as channels: instance normalisation.
//
//   mean[n,g]    = (1/M) sum x,  inv_std[n,g] = 1 / sqrt((1/M) sum (x - mean)^2 + epsilon)
//   xhat = (x - mean) * inv_std,   y = xhat * scale[c] + b[c]
//
//   a = dy * scale[c]
//   dx = inv_std * (a - (1/M) sum a - xhat * (1/M) sum a * xhat)     sums over the group
//   dscale[c] = sum over n, h, w of dy * xhat,   db[c] = sum over n, h, w of dy
//
// Sources: Wu, He, "Group Normalization" (2018); Ulyanov, Vedaldi, Lempitsky, "Instance
// Normalization" (2016).
//
/// Shapes    x, y, dy, dx [N, C, H, W], all with the same strides; mean, inv_std [N, G]; everything
///           else [C].
/// Writes    all of each output that is not nullptr, assigned. mean and inv_std may be nullptr both
///           in forward; dx, dscale and db may be.
/// Aliasing  y may be x; dx may be dy.
/// Numerics  two passes (mean, then squared deviations), so no cancellation for large means.
/// Errors    none of its own: the op has checked that G divides C and M >= 2.
#pragma once

#include <cstdint>

#include "kernels/cuda/view.h"
#include "kernels/image.h"

namespace trainyard::kernels {

struct GroupNormDims {
  ImageDims x;
  int64_t groups = 1;
  double epsilon = 1e-5;
  int64_t channels() const { return x.C / groups; }  // of a group
  int64_t values() const { return channels() * x.pixels(); }
};

namespace reference {  // T is float or double
template <typename T>
void group_norm_forward(const GroupNormDims& d, const ImageStrides& s, const T* x, const T* scale,
                        const T* b, T* y, T* mean, T* inv_std);
template <typename T>
void group_norm_backward(const GroupNormDims& d, const ImageStrides& s, const T* x, const T* scale,
                         const T* mean, const T* inv_std, const T* dy, T* dx, T* dscale, T* db);
}  // namespace reference

/// Samples are split over the team, and each one's sums are added in double, in order: the thread
/// count changes no bit. `workspace` is 64-byte aligned.
namespace cpu {
class Team;  // kernels/cpu/team.h
int64_t group_norm_workspace_bytes(const GroupNormDims& d);
void group_norm_forward(const GroupNormDims& d, const ImageStrides& s, const float* x,
                        const float* scale, const float* b, float* y, float* mean, float* inv_std,
                        void* workspace, Team& team);
void group_norm_backward(const GroupNormDims& d, const ImageStrides& s, const float* x,
                         const float* scale, const float* mean, const float* inv_std,
                         const float* dy, float* dx, float* dscale, float* db, void* workspace,
                         Team& team);
}  // namespace cpu

/// As above; statistics as in batch_norm.h.
namespace cuda {  // asynchronous on `stream`; a launch that failed is told by cudaPeekAtLastError()
int64_t group_norm_workspace_bytes(const GroupNormDims& d, const ImageStrides& s);
void group_norm_forward(const GroupNormDims& d, const ImageStrides& s, In x, const float* scale,
                        const float* b, Out y, float* mean, float* inv_std, void* workspace,
                        CUstream_st* stream);
void group_norm_backward(const GroupNormDims& d, const ImageStrides& s, In x, const float* scale,
                         const float* mean, const float* inv_std, In dy, Out dx, float* dscale,
                         float* db, void* workspace, CUstream_st* stream);
}  // namespace cuda

}  // namespace trainyard::kernels
