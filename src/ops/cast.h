// src/ops/cast.h: the same numbers in another form.
// Inputs      x, any shape.    Output  y, as x.
// Attributes  to: "I32" makes whole numbers integers, which Gather takes. Without it the type stays
//             and the storage, TensorInfo::storage, is each tensor's own (ONNX: to BFLOAT16,
//             FLOAT16).
// Gradients   none: integers have none, and storages are assigned after differentiation.
// Kernels     widen, narrow (kernels/half.h); to_index (kernels/embedding.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* cast_op();  // "Cast"

}  // namespace trainyard
