// src/ops/distinct_rows.h: lists each row of a table that the indices of a batch name once, for
// TakeRows (sampled_xent.h), and the position of each index in the list (kernels/distinct_rows.h).
//
// Inputs      indices I32, of any rank, in [0, V); counted I32, kGathered: the indices of all
//             ranks; if it is left out, only `indices` count; kept I32 [R], an accumulator, and
//             micro_step I64 [1]: both are given if all micro-batches of a step share one list,
//             which then grows.
// Outputs     rows I32 [R]: the distinct indices in the order of their first appearance, then -1;
//             the same on all ranks. position I32, as indices.
// Attributes  table: V; micro_batches: their number in a step, 1 by default. R is micro_batches
//             times the number of counted indices, and at most V.
// Gradients   none.
// Refuses     other types, empty tensors, 2^30 or more indices in a step, kept without micro_step.
// Kernels     distinct_rows
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* distinct_rows_op();  // "DistinctRows"

/// Returns R, the length of `rows`.
int64_t distinct_rows_size(int64_t table, int64_t counted, int64_t micro_batches);

}  // namespace trainyard
