// src/ops/cast.h: the same numbers in another storage (ONNX: to BFLOAT16). The type stays F32: how
// a tensor is stored is a property of its own, TensorInfo::storage. Inputs     x, any shape. Output
// y, as x; each in its tensor's own storage. Gradients  none: the precision pass inserts it after
// differentiation. Kernels    widen, narrow (kernels/bf16.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* cast_op();  // "Cast"

}  // namespace trainyard
