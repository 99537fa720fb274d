// src/ops/sequence_lengths.h: the number of tokens of each text, without the padding at its end.
// (ONNX has no such op.)
// Inputs      tokens, I32 [N, T]
// Outputs     lengths, I32 [N]: the number of tokens up to the last one that is not the padding
// Attributes  padding_id, default 0: the token that fills the end of short texts
// Saves       nothing
// Gradients   none, because the inputs are tokens
// Refuses     tokens that are not I32 [N, T]; a padding_id outside 0 .. 2^31 - 1
// Kernels     sequence_lengths (kernels/embedding.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* sequence_lengths_op();  // "SequenceLengths"

}  // namespace trainyard
