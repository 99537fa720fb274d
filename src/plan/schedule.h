// src/plan/schedule.h: the order in which the nodes of a graph run.
#pragma once

#include <vector>

#include "src/graph/graph.h"

namespace trainyard {

/// The graph's own order, except that an update of a parameter runs as soon as its gradient is
/// there and nobody needs the old value any more: the gradient's memory is free for the rest of
/// backward, and both are still in cache.
std::vector<NodeId> schedule(const Graph& graph);

}  // namespace trainyard
