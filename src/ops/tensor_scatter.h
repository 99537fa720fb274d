// src/ops/tensor_scatter.h: ONNX TensorScatter along axis 1, in place: writes the keys or values of
// new tokens into a cache (Role::kCache), which later nodes of the same run read.
// Inputs     cache [N, S, W], updated; update [N, T, W], as cache; positions I32 [N, T]: the row of
//            the cache for each row of update. (ONNX has one first row for each n, write_indices,
//            and the cache as a second tensor.) What is outside of 0..S-1 is not written; of equal
//            positions one after another, the last one is.
// Outputs    none
// Gradients  none: only models that generate keep keys and values.
// Refuses    other ranks; sizes and types that do not agree.
// Kernels    tensor_scatter (kernels/tensor_scatter.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* tensor_scatter_op();  // "TensorScatter"

}  // namespace trainyard
