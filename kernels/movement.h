// kernels/movement.h: operations that move elements without changing their values. Concat, Split,
// Slice, Transpose, Expand and their gradients are copies of boxes.
//
//   copy   y[box] = x[box]
//   scale  y[box] = factor * x[box]
//   zero   y[box] = 0
//
/// Shapes    operand 0 of the box is x, operand 1 is y; x may have strides of 0. zero does not read
///           x.
/// Writes    the elements of y in the box, each once, assigned.
/// Aliasing  none.
#pragma once

#include <cstdint>

#include "kernels/box.h"
#include "kernels/contract.h"
#include "kernels/operands.h"

namespace trainyard::kernels {

template <typename X, typename Y>
void check_movement(const X& x, const Y& y) {
  Contract("movement").given("x", x).given("y", y);
}

namespace reference {  // T is float or double
template <typename T>
void copy(const Box<2>& box, const T* x, T* y, Run<T> run = {});
template <typename T>
void scale(const Box<2>& box, double factor, const T* x, T* y, Run<T> run = {});
template <typename T>
void zero(const Box<2>& box, T* y, Run<T> run = {});
}  // namespace reference

/// Results are bit-identical for any team size.
namespace cpu {
void copy(const Box<2>& box, const float* x, float* y, Run run);
void scale(const Box<2>& box, double factor, const float* x, float* y, Run run);
void zero(const Box<2>& box, float* y, Run run);
}  // namespace cpu

namespace cuda {
void copy(const Box<2>& box, In x, Out y, Run run);
void scale(const Box<2>& box, double factor, In x, Out y, Run run);
void zero(const Box<2>& box, Out y, Run run);
}  // namespace cuda

}  // namespace trainyard::kernels
