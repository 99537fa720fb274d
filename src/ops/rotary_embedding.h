// src/ops/rotary_embedding.h: ONNX RotaryEmbedding in its rank-3 form, and the tables of cosines
// and sines that it reads.
//
// RotaryTables
// Inputs      positions [N, T], I32, optional.
// Outputs     cos, sin [N, T, R/2]; without positions [length, R/2], row t for position t.
// Attributes  frequencies, R/2 numbers: the angle of pair j is position * frequencies[j]; factor of
//             all cosines and sines, default 1; length, required without positions; dtype "F32"
//             (default) or "F64". (ONNX has no such op: there, tables are constants.)
// Gradients   none.
// Refuses     no or more than 256 frequencies; a length together with positions.
//
// RotaryEmbedding
// Inputs      x [N, T, H * D]; cos and sin, [N, T, R/2], or [P, R/2] with P of T or more; positions
//             [N, T], I32 in [0, P), optional and only with tables of rank 2.
// Output      y, as x.
// Attributes  num_heads: H, required; interleaved, default 0; inverse, default 0: rotates back.
//             R follows from the tables (ONNX's rotary_embedding_dim).
// Gradients   x: the op itself, with the other value of inverse. Tables have none.
// Refuses     other ranks; a width that the heads do not divide; tables wider than half a head.
// Kernels     rotary_tables, rotary (kernels/rotary.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* rotary_tables_op();     // "RotaryTables"
const Op* rotary_embedding_op();  // "RotaryEmbedding"

}  // namespace trainyard
