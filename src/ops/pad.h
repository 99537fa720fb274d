// src/ops/pad.h: elements before and behind those that there are, ONNX Pad.
// Inputs     x, of any rank.    Output  y
// Attributes pads (required): how many before each of the axes, then how many behind each; axes
//            (default all); mode "constant" (default), "reflect" (the border itself is not
//            repeated) or "edge"; value 0, of mode constant.
// Saves      nothing; the gradient node carries the input's shape.
// Gradients  x, assigned.
// Refuses    negative pads (Slice cuts), a reflection as long as its axis, a value beside another
//            mode.
// Kernels    resample (kernels/resample.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* pad_op();       // "Pad"
const Op* pad_grad_op();  // "PadGrad": (dy) -> dx, attribute shape

/// Pads of each axis of `x`, in its order. Reads what infer has accepted.
struct AxisPads {
  int64_t before = 0, behind = 0;
};
std::vector<AxisPads> axis_pads(const Attributes& attributes, const Shape& x);

}  // namespace trainyard
