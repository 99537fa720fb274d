// src/ops/expand.h: broadcasting as an op of its own, and its gradient.
// Inputs      x.    Output  y, of the shape that x and `shape` broadcast to.
// Attributes  shape: as ONNX's input of that name, sizes of at least 1.
// Saves       nothing.
// Gradients   x, assigned: SumTo, which adds up what an axis was repeated over.
// Refuses     shapes that do not broadcast.
// Kernels     copy (kernels/movement.h), reduce (kernels/reduce.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* expand_op();  // "Expand"
/// "SumTo": dy -> dx. Attribute shape: of dx, which broadcasts to dy.
const Op* sum_to_op();

}  // namespace trainyard
