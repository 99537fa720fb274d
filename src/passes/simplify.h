// src/passes/simplify.h: removes computations without changing results.
#pragma once

#include "src/graph/graph.h"

namespace trainyard {

/// Replaces each node whose output elements are all the same known number by a ConstantOfShape:
/// sums, activations and reshapes of constants.
void fold_constants(Graph& graph);

/// Drops nodes that do not lead to a marked output and update nothing. A graph without marked
/// outputs and updates is left unchanged, so that all of it can be inspected.
void remove_dead_code(Graph& graph);

}  // namespace trainyard
