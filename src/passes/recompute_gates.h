// src/passes/recompute_gates.h: computes the gates of dense networks, and what they multiply, again
// in the backward pass.
//
//   y = Swish(gate) * up, z = Gemm(y, w):  GemmGrad reads y, and MulGrad reads Swish(gate); both
//   are computed again right before the first of them
//
// The gradients of Swish or Gelu and of the product keep `gate` and `up` in any case, so that these
// two, as large as the widest tensors of a language model's layer, need not last from the forward
// to the backward pass. It costs a sweep over memory for each. A tensor that is a marked output,
// and an activation that other nodes read, are kept.
#pragma once

#include "src/graph/graph.h"

namespace trainyard {

void recompute_gates(Graph& graph);

}  // namespace trainyard
