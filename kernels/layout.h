// kernels/layout.h: rank-4 tensors in their two physical orders.
//
//   nchw_to_nhwc  y[n,h,w,c] = x[n,c,h,w]        nhwc_to_nchw  the way back
//
/// Shapes    x, y hold N * C * H * W elements.
/// Writes    all of y, assigned.
/// Aliasing  none.
#pragma once

#include "kernels/cuda/view.h"
#include "kernels/image.h"

namespace trainyard::kernels {

namespace reference {  // T is float or double
template <typename T>
void nchw_to_nhwc(ImageDims d, const T* x, T* y);
template <typename T>
void nhwc_to_nchw(ImageDims d, const T* x, T* y);
}  // namespace reference

namespace cpu {
class Team;  // kernels/cpu/team.h
void nchw_to_nhwc(ImageDims d, const float* x, float* y, Team& team);
void nhwc_to_nchw(ImageDims d, const float* x, float* y, Team& team);
}  // namespace cpu

/// One launch. Asynchronous on `stream`; a launch that failed is told by cudaPeekAtLastError().
namespace cuda {
void nchw_to_nhwc(ImageDims d, In x, Out y, CUstream_st* stream);
void nhwc_to_nchw(ImageDims d, In x, Out y, CUstream_st* stream);
}  // namespace cuda

}  // namespace trainyard::kernels
