// src/ops/expand.h: broadcasts a tensor; its gradient SumTo sums over the broadcast axes.
// Inputs      x.    Output  y, of the shape that x and `shape` broadcast to.
// Attributes  shape: like ONNX's input of the same name, sizes of at least 1.
// Saves       nothing.
// Gradients   x, assigned (SumTo).
// Refuses     shapes that do not broadcast.
// Kernels     copy (kernels/movement.h), reduce (kernels/reduce.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* expand_op();  // "Expand"
/// "SumTo": dy -> dx. Attribute shape: that of dx, which must broadcast to dy's.
const Op* sum_to_op();

}  // namespace trainyard
