// src/ops/arithmetic.h: functions of two tensors that broadcast as numpy's do.
//
//   Sub, Mul, Div, Pow, Min, Max; PRelu (x, slope)        Add: add.h
//
// Inputs     a, b, of shapes that broadcast.    Output  y, of the shape of both.
// Saves      a and b, where a gradient needs them.
// Gradients  both, assigned. One node computes them in the shape of y; a SumTo behind it adds up
// what
//            broadcasting has repeated. Equal operands of Min and Max share theirs.
// Refuses    shapes that do not broadcast, types that differ.
// Kernels    arithmetic, arithmetic_grad (kernels/arithmetic.h)
#pragma once

#include <span>

#include "src/graph/op.h"

namespace trainyard {

/// "Sub", ...; "MulGrad": (a, b, dy) -> da, db.
std::span<const Op* const> arithmetic_ops();

/// What Add and its relatives share: two inputs that broadcast.
Result<std::vector<TensorType>> infer_broadcast(const InferContext& c);

}  // namespace trainyard
