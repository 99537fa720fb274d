// src/ops/slice.h: cuts a box out of a tensor.
// Inputs      x.    Output  y.
// Attributes  starts, ends; axes (default: the first ones); steps (default 1), like ONNX's inputs
//             of the same names: negative positions count from the end, and positions past the end
//             mean the end.
// Saves       nothing.
// Gradients   x, assigned: zeros around dy.
// Refuses     lists of different lengths, steps below 1, a slice that is empty.
// Kernels     copy (kernels/movement.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* slice_op();       // "Slice"
const Op* slice_grad_op();  // "SliceGrad": dy -> dx; attributes of Slice, and shape: that of x

/// Along each axis of x: the first position, the step and the number of positions.
struct SliceBox {
  std::vector<int64_t> first, step, size;
};
SliceBox slice_box(const Attributes& attributes, const Shape& x);

}  // namespace trainyard
