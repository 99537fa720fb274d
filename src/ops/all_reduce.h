// src/ops/all_reduce.h: the mean of a bucket of gradients over the ranks that train a job together,
// in two nodes, so that what stands between them runs while the devices exchange.
//
// AllReduceStart  Inputs g_0 .. g_n-1, F32 or F64. Outputs r_0 .. r_n-1, as the inputs; nobody but
//                 AllReduceDone may read them.
// AllReduceDone   Inputs after, optional: read by nobody, it holds the node back until it is there;
//                 r_0 .. r_n-1. Outputs y_0 .. y_n-1 = (1/N) sum over the N ranks of g_i, the same
//                 bits on every rank.
// Attributes      bucket: the two of a bucket have the same number, no other bucket has it.
// Kernels         the backend's communicator (src/runtime/communicator.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

/// Tensors of one bucket, at most.
inline constexpr int64_t kBucketTensorsMax = 128;

const Op* all_reduce_start_op();  // "AllReduceStart"
const Op* all_reduce_done_op();   // "AllReduceDone"

}  // namespace trainyard
