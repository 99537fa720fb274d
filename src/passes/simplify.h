// src/passes/simplify.h: less to compute, with the same result.
#pragma once

#include "src/graph/graph.h"

namespace trainyard {

/// A node of which every element is known to be one number becomes a ConstantOfShape: sums and
/// activations of constants, constants in another shape.
void fold_constants(Graph& graph);

/// Drops nodes that lead to no marked output and update nothing. A graph that marks and updates
/// nothing is left unchanged: all of it may be inspected.
void remove_dead_code(Graph& graph);

}  // namespace trainyard
