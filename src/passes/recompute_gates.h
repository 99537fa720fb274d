// src/passes/recompute_gates.h: computes the gates of dense networks again in the backward pass.
//
//   y = Swish(gate) * up:  MulGrad reads Swish(gate), which is computed again right before it
//
// The gradient of Swish or Gelu keeps `gate` in any case, so the activation, as large as the widest
// tensor of a language model's layer, need not last from the forward to the backward pass. It costs
// one sweep over memory. Nothing changes if another node reads the activation.
#pragma once

#include "src/graph/graph.h"

namespace trainyard {

void recompute_gates(Graph& graph);

}  // namespace trainyard
