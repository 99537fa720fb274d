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

}  // namespace trainyard::kernels
