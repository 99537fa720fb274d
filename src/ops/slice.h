// src/ops/slice.h: a box cut out of a tensor.
// Inputs      x.    Output  y.
// Attributes  starts, ends; axes (default: the first ones); steps (default 1), as ONNX's inputs of
//             these names: negative positions count from the end, positions behind it are the end.
// Saves       nothing.
// Gradients   x, assigned: zeros around dy.
// Refuses     lists of different lengths, steps below 1, a slice that is empty.
// Kernels     copy (kernels/movement.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* slice_op();       // "Slice"
const Op* slice_grad_op();  // "SliceGrad": dy -> dx; attributes of Slice and shape, that of x

/// The cut along each axis of x.
struct SliceBox {
  std::vector<int64_t> first, step, size;
};
SliceBox slice_box(const Attributes& attributes, const Shape& x);

}  // namespace trainyard
