// src/passes/recompute.h: recomputes activations in the backward pass instead of keeping them.
//
// The forward pass is cut at narrow places: between two nodes where only one computed tensor
// crosses, such as the output of a residual block. Between two cuts, what the backward pass reads
// is computed again, from the tensor at the cut, right before its first reader there; the original
// dies in the forward pass. Clones are named "<node>/again" and compute the same bits: dropout is
// keyed by step and name of its stream, and batch normalization is replayed from the statistics
// that it saved, so that its running ones are updated once.
#pragma once

#include "src/passes/passes.h"

namespace trainyard {

void recompute_activations(Graph& graph, Recompute recompute);

}  // namespace trainyard
