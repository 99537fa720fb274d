// src/ops/sequence_pool.h: one vector for each sequence. Not in ONNX, which has it as Slice or as
// masks and ReduceSum.
// Inputs      x [N, T, D]; tokens [N, T], I32, optional, no gradient: positions whose token is 0
//             (padding) do not count.
// Output      y [N, D]: the mean over the positions that count, or the first, or the last of those
// that
//             count; 0 if none does.
// Attributes  mode: "mean" (default), "first" or "last".
// Gradients   x, assigned.
// Refuses     other ranks and types; tokens with mode first; another mode.
// Kernels     sequence_pool, sequence_pool_backward (kernels/embedding.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* sequence_pool_op();  // "SequencePool"
/// "SequencePoolGrad": (dy, tokens) -> dx; attributes mode, length: T
const Op* sequence_pool_grad_op();

}  // namespace trainyard
