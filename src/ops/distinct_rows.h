// src/ops/distinct_rows.h: the rows of a table that a batch's indices name, each once, for TakeRows
// (sampled_xent.h), and where each index stands among them (kernels/distinct_rows.h).
//
// Inputs      indices I32, of any rank, in [0, V); counted I32, kGathered: all ranks' indices,
//             without it indices are all; kept I32 [R], an accumulator, and micro_step I64 [1]:
//             both where the list grows over the micro-batches of a step, which all use it.
// Outputs     rows I32 [R]: in the order in which they first appear, then -1; alike on all ranks.
//             position I32, as indices.
// Attributes  table: V; micro_batches: of a step, 1 by default. R is their number times that of the
//             counted indices, and at most V.
// Gradients   none.
// Refuses     other types, empty tensors, more than 2^31 - 1 entries, kept without micro_step.
// Kernels     distinct_rows
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* distinct_rows_op();  // "DistinctRows"

/// R.
int64_t distinct_rows_size(int64_t table, int64_t counted, int64_t micro_batches);

}  // namespace trainyard
