// src/passes/recompute.h: recomputes activations in the backward pass instead of keeping them.
//
// The forward pass is cut at narrow places: between two nodes where only one computed tensor
// crosses, such as the output of a residual block. The activations between two cuts that the
// backward pass reads are computed again, from the tensor at the cut, right before their first
// reader there; the originals are released during the forward pass. Repeated nodes are named
// "<node>/again" and compute the same bits: dropout is keyed by the step and the name of its
// stream, and batch normalization uses the saved statistics, so that its running statistics are
// updated only once.
#pragma once

#include "src/passes/passes.h"

namespace trainyard {

void recompute_activations(Graph& graph, Recompute recompute);

}  // namespace trainyard
