// src/ops/sequence_pool.h: reduces each sequence to one vector. ONNX has no such op, only Slice, or
// masks and ReduceSum.
// Inputs      x [N, T, D]; tokens [N, T], I32, optional, no gradient: positions whose token is 0
//             (padding) do not count.
// Output      y [N, D]: the mean over the positions that count, or the first or the last of them; 0
//             if none counts.
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
