// src/ops/reduce.h: reductions along axes.
//
//   ReduceSum, ReduceMean, ReduceMin, ReduceMax, ReduceL2
//
// Inputs      x.    Output  y.
// Attributes  axes: default all; keepdims: default 1, reduced axes stay with size 1.
// Saves       ReduceMin, ReduceMax, ReduceL2: x and y.
// Gradients   x, assigned. Equal extremes share the gradient, as in torch.amax.
// Refuses     axes that x does not have or that are given twice.
// Kernels     reduce, reduce_grad (kernels/reduce.h); arithmetic of Mul for sums' gradients
#pragma once

#include <span>

#include "src/graph/op.h"

namespace trainyard {

/// Returns all ops of this file: "ReduceSum", ..., and their gradients. "ReduceSumGrad": dy -> dx
/// (attribute shape: that of x); "ReduceMaxGrad": (x, y, dy) -> dx.
std::span<const Op* const> reduce_ops();

/// Returns all axes that are reduced, ascending, in 0..rank-1; for a reduction or its gradient.
std::vector<int64_t> reduce_axes(const Attributes& attributes, int64_t rank);

}  // namespace trainyard
