// src/passes/keep_copies.h: keeps the 16-bit copies of parameters from one step to the next.
//
//   Cast(p) -> copy, products(copy), update(p)   becomes   products(copy), update(p, copy)
//
// The update writes the copy while it has the new value at hand, so that a step neither reads all
// parameters again nor needs a launch for it. Executor::write() fills the copy when the parameter
// gets its first value. Results are bit-identical. A copy is kept if the backward pass reads it
// too, so that it needs no more memory at the largest place of the step, or if it is small. The
// parameter must have exactly one update, of all of its elements, by an op that accepts a copy
// (src/ops/optimizer_update.h).
//
// The pass is for GPUs only: on a CPU, the casts take little of a step.
#pragma once

#include "src/graph/graph.h"

namespace trainyard {

void keep_copies(Graph& graph);

}  // namespace trainyard
