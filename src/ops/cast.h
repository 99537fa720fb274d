// src/ops/cast.h: the same numbers in another type or storage.
// Inputs      x, any shape.    Output  y, as x.
// Attributes  to: "I32" converts whole numbers to integers, for Gather. Without it the type stays
//             the same and only the storage (TensorInfo::storage) of x and y differs (in ONNX: to
//             BFLOAT16, FLOAT16).
// Gradients   none: integers have none, and storages are assigned after differentiation.
// Kernels     widen, narrow (kernels/half.h); to_index (kernels/embedding.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* cast_op();  // "Cast"

}  // namespace trainyard
