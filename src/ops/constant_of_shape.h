// src/ops/constant_of_shape.h: a tensor whose elements all have the same value. The backward pass
// starts with one: d loss / d loss = 1.
// Inputs      none.    Output  y.
// Attributes  shape, required; value, default 0; dtype "F32" (default) or "F64" (ONNX instead takes
//             the type of its tensor-valued `value`).
// Gradients   none.
// Kernels     fill (kernels/elementwise.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* constant_of_shape_op();  // "ConstantOfShape"

}  // namespace trainyard
