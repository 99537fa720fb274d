// src/ops/reshape.h: the same elements, in row-major order, under another shape.
// Inputs      x, any shape.    Output  y.
// Attributes  shape: required, all dimensions (including the batch); one may be -1, which is
//             inferred.
// Gradients   x, assigned.
// Refuses     a shape that does not hold x's elements; a zero; two -1.
// Kernels     copy (kernels/elementwise.h), or nothing if the plan gives y the memory of x
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* reshape_op();       // "Reshape"
const Op* reshape_grad_op();  // "ReshapeGrad": dy -> dx; attribute shape: that of x

}  // namespace trainyard
