// kernels/arithmetic.h: functions of two tensors with broadcasting, for every F in
// kernels/math/arithmetic.h.
//
//   y = F::f(a, b)        da = F::da(a, b, dy),  db = F::db(a, b, dy)
//
/// Shapes    the box has the operands a, b, y. Gradients have the shape and the strides of y; a
///           separate node (SumTo) then sums the gradients of broadcast operands.
/// Writes    all of y; all of da and of db, where they are not nullptr. Assigned.
/// Aliasing  y may be an operand that is not broadcast; either da or db may be dy.
#pragma once

#include <cstdint>

#include "kernels/box.h"
#include "kernels/contract.h"
#include "kernels/math/arithmetic.h"
#include "kernels/operands.h"

namespace trainyard::kernels {

template <typename X, typename Y>
void check_arithmetic(const X& a, const X& b, const Y& y) {
  Contract("arithmetic").given("a", a).given("b", b).given("y", y);
}
template <typename X>
void check_arithmetic_grad(const X& a, const X& b, const X& dy) {
  Contract("arithmetic_grad").given("a", a).given("b", b).given("dy", dy);
}

namespace reference {  // T is float or double
template <typename F, typename T>
void arithmetic(const Box<3>& box, const T* a, const T* b, T* y, Run<T> run = {});
template <typename F, typename T>
void arithmetic_grad(const Box<3>& box, const T* a, const T* b, const T* dy, T* da, T* db,
                     Run<T> run = {});
}  // namespace reference

/// Results are bit-identical for any team size.
namespace cpu {
template <typename F>
void arithmetic(const Box<3>& box, const float* a, const float* b, float* y, Run run);
template <typename F>
void arithmetic_grad(const Box<3>& box, const float* a, const float* b, const float* dy, float* da,
                     float* db, Run run);
}  // namespace cpu

namespace cuda {
template <typename F>
void arithmetic(const Box<3>& box, In a, In b, Out y, Run run);
template <typename F>
void arithmetic_grad(const Box<3>& box, In a, In b, In dy, Out da, Out db, Run run);
}  // namespace cuda

}  // namespace trainyard::kernels
