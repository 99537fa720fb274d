// kernels/movement.h: elements that change their place and not their value. Concat, Split, Slice,
// Transpose, Expand and their gradients are copies of boxes.
//
//   y[box] = x[box]
//
/// Shapes    operand 0 of the box is x, operand 1 is y; x may have strides of 0.
/// Writes    the elements of y in the box, each once, assigned.
/// Aliasing  none.
#pragma once

#include <cstdint>

#include "kernels/box.h"
#include "kernels/cuda/view.h"

namespace trainyard::kernels {

namespace reference {  // T is float or double
template <typename T>
void copy(const Box<2>& box, const T* x, T* y);
}  // namespace reference

/// The same bits for a team of any size.
namespace cpu {
class Team;  // kernels/cpu/team.h
void copy(const Box<2>& box, const float* x, float* y, Team& team);
}  // namespace cpu

namespace cuda {  // asynchronous on `stream`; a launch that failed is told by cudaPeekAtLastError()
void copy(const Box<2>& box, In x, Out y, CUstream_st* stream);
/// y[box] = factor * x[box]
void scale(const Box<2>& box, double factor, In x, Out y, CUstream_st* stream);
/// y[box] = 0; operand 0 of the box is not read.
void zero(const Box<2>& box, Out y, CUstream_st* stream);
}  // namespace cuda

}  // namespace trainyard::kernels
