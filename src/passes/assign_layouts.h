// src/passes/assign_layouts.h: gives each rank-4 activation a physical order.
//
// Nodes that take either order and hand tensors to each other form a component; one that holds an
// op which gains from channels-last (LayoutRule::kChannelsLastToo) becomes channels-last as a
// whole. Graph inputs and what row-major-only ops read or write stay row-major; a Reorder node is
// inserted where the two meet, unless both orders are the same bytes (one channel, or one pixel).
#pragma once

#include "src/graph/graph.h"

namespace trainyard {

void assign_layouts(Graph& graph);

}  // namespace trainyard
