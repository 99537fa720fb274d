// src/ops/all_reduce.h: averages a bucket of gradients over the ranks that train a job together.
// There are two nodes, so that the nodes between them run during the exchange.
//
// AllReduceStart  Inputs g_0 .. g_n-1, F32 or F64. Outputs r_0 .. r_n-1, as the inputs; only
//                 AllReduceDone may read them.
// AllReduceDone   Inputs after, optional, which is not read but must be computed before this node
//                 runs; r_0 .. r_n-1. Outputs y_0 .. y_n-1 = (1/N) sum over the N ranks of g_i, the
//                 same bits on every rank.
// Attributes      bucket: a number that only the two nodes of this bucket have.
// Kernels         the backend's communicator (src/runtime/communicator.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

/// The most tensors that one bucket may have.
inline constexpr int64_t kBucketTensorsMax = 128;

const Op* all_reduce_start_op();  // "AllReduceStart"
const Op* all_reduce_done_op();   // "AllReduceDone"

}  // namespace trainyard
