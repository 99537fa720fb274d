// src/ops/attention.h: ONNX Attention in its rank-3 form. The matrix of scores is never stored.
// Inputs      query [N, Tq, H * D]; key and value [N, Tk, H * D], both or neither. Without them
//             query is packed, [N, T, 3 * H * D]: at each position first q, then k, then v, each
//             with its heads one after the other. (ONNX has no packed form.) With dropout, the next
//             input is step, I64 [1].
// Outputs     y [N, Tq, H * D]; log_sum_exp [N, H, Tq] of the scores, for backward (may be left
//             out).
// Attributes  q_num_heads: H, required; is_causal, default 0: position i sees only keys 0..i; scale
//             of the scores, default 1 / sqrt(D); dropout of the probabilities, default 0, with a
//             mask drawn from seed and stream like that of Dropout. (ONNX has no dropout here.)
// Saves       its inputs, y and log_sum_exp.
// Gradients   query, key, value, assigned by one node; unneeded outputs are left out.
// Refuses     other ranks; a width that the heads do not divide; key without value; shapes that do
//             not agree; a scale that is not positive and finite; dropout outside [0, 1), or
//             without step.
// Kernels     attention_forward, attention_backward (kernels/attention.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* attention_op();  // "Attention"
/// "AttentionGrad": (y, log_sum_exp, dy, query, key, value, step) -> (dquery, dkey, dvalue)
const Op* attention_grad_op();

}  // namespace trainyard
