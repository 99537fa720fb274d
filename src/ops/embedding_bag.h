// src/ops/embedding_bag.h: for each row of tokens, the sum or mean of the vectors of its tokens.
// Inputs      table [V, D]; tokens I32 [N, T] in [0, V), no gradient.       Output  y [N, D]
// Attributes  mode: mean (default) or sum; padding_idx: the token that does not count, -1: none. A
//             row that consists of padding_idx gives zeros.
// Gradients   table, assigned.
// Refuses     other ranks and types, empty tensors, a padding_idx outside [-1, V).
// Kernels     embedding_bag, embedding_bag_backward (kernels/embedding_bag.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* embedding_bag_op();       // "EmbeddingBag"
const Op* embedding_bag_grad_op();  // "EmbeddingBagGrad": (tokens, dy) -> dtable; attribute rows: V

}  // namespace trainyard
