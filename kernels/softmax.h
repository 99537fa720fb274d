// kernels/softmax.h: softmax along the middle one of three dimensions [outer, width, inner].
//
//   Softmax:     y = exp(x - m) / sum exp(x - m),   m = max x       dx = y * (dy - sum dy * y)
//   LogSoftmax:  y = x - m - log sum exp(x - m)                     dx = dy - exp(y) * sum dy
//
/// Shapes    x, y, dy, dx [outer, width, inner].
/// Writes    all of y (dx), assigned.
/// Aliasing  y may be x; dx may be dy.
/// Numerics  no overflow while max - min along the dimension fits T.
#pragma once

#include <cstdint>

#include "kernels/cuda/view.h"

namespace trainyard::kernels {

struct SoftmaxDims {
  int64_t outer, width, inner;  // all >= 1
  bool log = false;
};

namespace reference {  // T is float or double
template <typename T>
void softmax_forward(const SoftmaxDims& d, const T* x, T* y);
template <typename T>
void softmax_backward(const SoftmaxDims& d, const T* y, const T* dy, T* dx);
}  // namespace reference

/// The same bits for a team of any size.
namespace cpu {
class Team;  // kernels/cpu/team.h
void softmax_forward(const SoftmaxDims& d, const float* x, float* y, Team& team);
void softmax_backward(const SoftmaxDims& d, const float* y, const float* dy, float* dx, Team& team);
}  // namespace cpu

/// One launch. Asynchronous on `stream`; a launch that failed is told by cudaPeekAtLastError().
namespace cuda {
void softmax_forward(const SoftmaxDims& d, In x, Out y, CUstream_st* stream);
void softmax_backward(const SoftmaxDims& d, In y, In dy, Out dx, CUstream_st* stream);
}  // namespace cuda

}  // namespace trainyard::kernels
