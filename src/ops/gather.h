// src/ops/gather.h: rows of a table by index: an embedding. ONNX Gather along the first axis.
// Inputs      table [V, ...], rank >= 2; indices, I32 of any rank >= 1, in [0, V), no gradient.
// Output      y, shape indices.shape + table.shape[1:].
// Attributes  axis: must be 0.
// Gradients   table, assigned: rows that no index names get 0; equal indices are summed in the
// order
//             in which they stand.
// Refuses     other types and ranks, empty tensors, another axis.
// Kernels     gather, gather_backward (kernels/embedding.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* gather_op();       // "Gather"
const Op* gather_grad_op();  // "GatherGrad": (indices, dy) -> dtable; attribute shape: the table's

}  // namespace trainyard
