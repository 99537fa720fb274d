// src/ops/constant_of_shape.h: a tensor of one value; the gradient of a loss by itself starts here.
// Inputs      none.    Output  y.
// Attributes  shape, required; value, default 0; dtype "F32" (default) or "F64", which ONNX reads
// off
//             its tensor-valued `value`.
// Gradients   none.
// Kernels     fill (kernels/elementwise.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* constant_of_shape_op();  // "ConstantOfShape"

}  // namespace trainyard
