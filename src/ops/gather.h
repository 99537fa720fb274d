// src/ops/gather.h: looks up rows of a table by index (an embedding). ONNX Gather along the first
// axis.
// Inputs      table [V, ...], rank >= 2; indices, I32 of any rank >= 1, in [0, V), no gradient.
// Output      y, shape indices.shape + table.shape[1:].
// Attributes  axis: must be 0.
// Gradients   table, assigned: rows that no index names get 0; the gradients of equal indices are
//             summed in the order of the indices.
// Refuses     other types and ranks, empty tensors, another axis.
//
// SplitGather and SplitGatherGrad: the same for a table whose rows are distributed over the ranks.
// Inputs      this rank's V rows of the table, kClasses; indices of all ranks, kGathered.
// Output      y, kSummand: 0 where an index names a row of another rank, so that the sum over the
//             ranks has each row once.
// Attributes  rank, of ranks: the rows are [rank V, (rank + 1) V) of the whole table.
// Gradients   table, assigned, from the gradients of all ranks' y, kGathered: it needs no exchange.
// Kernels     gather, gather_backward (kernels/embedding.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* gather_op();        // "Gather"
const Op* gather_grad_op();   // "GatherGrad": (indices, dy) -> dtable; attribute shape: the table's
const Op* split_gather_op();  // "SplitGather"
const Op* split_gather_grad_op();  // "SplitGatherGrad": as GatherGrad, with rank and ranks

}  // namespace trainyard
