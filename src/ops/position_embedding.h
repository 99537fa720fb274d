// src/ops/position_embedding.h: adds a learned vector to each position of a sequence, and can
// insert learned positions at the front, such as a class token. ONNX has no such op, only Expand,
// Concat and Add.
// Inputs     x [N, T, D]; position [P + T, D]; prefix [P, D], optional (without it P is 0).
// Output     y [N, P + T, D]
// Gradients  x, position, prefix, assigned by one node; unneeded outputs are left out.
// Refuses    other ranks; sizes that do not agree.
// Kernels    add_positions, add_positions_backward (kernels/embedding.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* position_embedding_op();  // "PositionEmbedding"
/// "PositionEmbeddingGrad": dy -> (dx, dposition, dprefix); attribute prefix: P
const Op* position_embedding_grad_op();

}  // namespace trainyard
