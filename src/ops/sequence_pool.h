// src/ops/sequence_pool.h: reduces each sequence to one vector. ONNX has no such op, only Slice, or
// masks and ReduceSum.
// Inputs      x [N, T, D]; tokens [N, S], I32, optional, no gradient: positions of padding do
//             not count. S is T, or with mode max T or more: x[n, t] was then computed
//             from tokens t .. t + S - T, all of which must be there, except at the first position.
// Output      y [N, D]: the mean over the positions that count, their maximum, or the first or the
//             last of them; 0 if none counts.
// Attributes  mode: "mean" (default), "max", "first" or "last"; padding_id, default 0: the token
// that
//             fills the end of short texts.
// Saves       with mode max, x.
// Gradients   x, assigned; that of a maximum goes to the first position that has it.
// Refuses     other ranks and types; tokens with mode first; another mode.
// Kernels     sequence_pool, sequence_pool_backward, sequence_max, sequence_max_backward
//             (kernels/embedding.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* sequence_pool_op();  // "SequencePool"
/// "SequencePoolGrad": (dy, tokens) -> dx, with mode max (dy, tokens, x); attributes mode,
/// padding_id, length: T
const Op* sequence_pool_grad_op();

}  // namespace trainyard
