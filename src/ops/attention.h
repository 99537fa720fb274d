// src/ops/attention.h: ONNX Attention in its rank-3 form. The matrix of scores is never stored.
// Inputs      query [N, Tq, H * D]; key and value [N, Tk, KV * D], both or neither. Without them
//             query is packed, [N, T, (H + 2 * KV) * D]: at each position first q, then k, then v,
//             each with its heads one after the other. (ONNX has no packed form.) With dropout, the
//             next input is step, I64 [1]. Then positions, I32 [N, Tq], and key_counts, I32 [N],
//             which are optional.
// Outputs     y [N, Tq, H * D]; log_sum_exp [N, H, Tq] of the scores, for backward (may be left
//             out).
// Attributes  q_num_heads: H, required; kv_num_heads: KV, default H: query head h reads head
//             h / (H / KV) of key and value; is_causal, default 0: query i sees only keys 0..i;
//             window, default 0: a causal query sees only so many of the newest keys, itself
//             included; cached, default 0; scale of the scores, default 1 / sqrt(D); dropout of the
//             probabilities, default 0, with a mask drawn from seed and stream like that of
//             Dropout. (ONNX has no dropout here.)
// Positions   only with is_causal. cached 0: several documents are in one row, positions are places
//             in them, and query i sees keys i - positions[n, i] .. i. cached 1: the keys are those
//             kept so far, and query i sees keys 0 .. positions[n, i].
// Key counts  only without is_causal: each query of row n sees keys 0 .. key_counts[n] - 1 (ONNX's
//             nonpad_kv_seqlen). y of a query that sees no key is 0.
// Saves       its inputs, y and log_sum_exp.
// Gradients   query, key, value, assigned by one node; unneeded outputs are left out.
// Refuses     other ranks; a width that the heads do not divide; key without value; shapes that do
//             not agree; a scale that is not positive and finite; dropout outside [0, 1), or
//             without step; positions, a window or a cache without is_causal, key counts with it;
//             positions in documents if Tq differs from Tk.
// Kernels     attention_forward, attention_backward (kernels/attention.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* attention_op();  // "Attention"
/// "AttentionGrad": (y, log_sum_exp, dy, query, key, value, step, positions, key_counts) ->
/// (dquery, dkey, dvalue)
const Op* attention_grad_op();

}  // namespace trainyard
