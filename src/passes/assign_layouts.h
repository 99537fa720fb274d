// src/passes/assign_layouts.h: gives each rank-4 activation a physical order.
//
// Nodes that accept either order and pass tensors to each other form a component. If one op of a
// component gains from channels-last (LayoutRule::kChannelsLastToo), the whole component becomes
// channels-last. Graph inputs, and tensors that row-major-only ops read or write, stay row-major. A
// Reorder node is inserted between the two orders, unless both have the same bytes (one channel, or
// one pixel).
#pragma once

#include "src/graph/graph.h"

namespace trainyard {

void assign_layouts(Graph& graph);

}  // namespace trainyard
