// src/ops/arithmetic.h: functions of two tensors that broadcast as in numpy.
//
//   Sub, Mul, Div, Pow, Min, Max; PRelu (x, slope)        Add: add.h
//
// Inputs     a, b, of shapes that broadcast.    Output  y, of the broadcast shape.
// Saves      a and b, if a gradient needs them.
// Gradients  both, assigned. One node computes them in the shape of y; SumTo nodes then sum them
//            over the axes that were broadcast. Equal operands of Min and Max share the gradient.
// Refuses    shapes that do not broadcast, types that differ.
// Kernels    arithmetic, arithmetic_grad (kernels/arithmetic.h)
#pragma once

#include <span>

#include "src/graph/op.h"

namespace trainyard {

/// Returns all ops of this file: "Sub", ..., and their gradients, such as "MulGrad": (a, b, dy) ->
/// da, db.
std::span<const Op* const> arithmetic_ops();

/// Infers the output type of Add and of the ops of this file, whose two inputs broadcast.
Result<std::vector<TensorType>> infer_broadcast(const InferContext& c);

}  // namespace trainyard
