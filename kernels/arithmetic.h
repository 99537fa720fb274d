// kernels/arithmetic.h: functions of two tensors with broadcasting, for every F in
// kernels/math/arithmetic.h.
//
//   y = F::f(a, b)        da = F::da(a, b, dy),  db = F::db(a, b, dy)
//
/// Shapes    operands of the box: a, b, y. Gradients have the shape of y and lie as y does; what
///           broadcasting has repeated is summed by a node of its own (SumTo).
/// Writes    all of y; all of da and of db, where they are not nullptr. Assigned.
/// Aliasing  y may be an operand that is not broadcast; one of da and db may be dy.
#pragma once

#include <cstdint>

#include "kernels/box.h"
#include "kernels/cuda/view.h"
#include "kernels/math/arithmetic.h"

namespace trainyard::kernels {

namespace reference {  // T is float or double
template <typename F, typename T>
void arithmetic(const Box<3>& box, const T* a, const T* b, T* y);
template <typename F, typename T>
void arithmetic_grad(const Box<3>& box, const T* a, const T* b, const T* dy, T* da, T* db);
}  // namespace reference

/// The same bits for a team of any size.
namespace cpu {
class Team;  // kernels/cpu/team.h
template <typename F>
void arithmetic(const Box<3>& box, const float* a, const float* b, float* y, Team& team);
template <typename F>
void arithmetic_grad(const Box<3>& box, const float* a, const float* b, const float* dy, float* da,
                     float* db, Team& team);
}  // namespace cpu

namespace cuda {  // asynchronous on `stream`; a launch that failed is told by cudaPeekAtLastError()
template <typename F>
void arithmetic(const Box<3>& box, In a, In b, Out y, CUstream_st* stream);
template <typename F>
void arithmetic_grad(const Box<3>& box, In a, In b, In dy, Out da, Out db, CUstream_st* stream);
}  // namespace cuda

}  // namespace trainyard::kernels
