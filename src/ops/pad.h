// src/ops/pad.h: adds elements around a tensor, ONNX Pad.
// Inputs     x, of any rank.    Output  y
// Attributes pads (required): the number of elements before each of the axes, then the number
//            after each; axes (default all); mode "constant" (default), "reflect" (the border
//            itself is not repeated) or "edge"; value 0, for mode constant.
// Saves      nothing; the gradient node has the attribute shape, that of x.
// Gradients  x, assigned.
// Refuses    negative pads (use Slice), a reflection as long as its axis, a value with another
//            mode.
// Kernels    resample (kernels/resample.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* pad_op();       // "Pad"
const Op* pad_grad_op();  // "PadGrad": (dy) -> dx, attribute shape

/// Pads of each axis of `x`. The attributes must have passed infer.
struct AxisPads {
  int64_t before = 0, behind = 0;
};
std::vector<AxisPads> axis_pads(const Attributes& attributes, const Shape& x);

}  // namespace trainyard
