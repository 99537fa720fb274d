// src/ops/reverse_sequence.h: ONNX ReverseSequence with the batch as axis 0 and time as axis 1.
// Inputs      x [N, T, D]; lengths, I32 [N], no gradient.
// Output      y [N, T, D]: the first lengths[n] positions of row n in reverse order, then the
// others
//             as they are.
// Saves       lengths.
// Gradients   x, by the same op.
// Refuses     other ranks and types; another number of lengths than of rows.
// Kernels     reverse_sequence (kernels/embedding.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* reverse_sequence_op();  // "ReverseSequence"

}  // namespace trainyard
