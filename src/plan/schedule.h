// src/plan/schedule.h: the order in which the nodes of a graph run.
#pragma once

#include <cstdint>
#include <vector>

#include "src/graph/graph.h"

namespace trainyard {

/// An update of at most so many bytes of gradient waits for others, until all that wait keep
/// kHeldMax alive. A launch costs a GPU 1 to 2 us beyond its work; Adam on 64 Ki parameters, 28 B
/// each, works 0.4 us on an H200.
constexpr int64_t kHeldEachMax = int64_t{256} << 10;
constexpr int64_t kHeldMax = int64_t{4} << 20;

/// The graph's own order, except for the updates of parameters. A large one runs as soon as its
/// gradient is available and nothing needs the old value anymore: the gradient's memory is free for
/// the rest of backward, and both are still in cache. Small ones wait for each other and then run
/// one after another, kind by kind, so that a backend can run them in one launch
/// (Backend::prepare_group): at most kHeldMax bytes of gradients live longer for it.
std::vector<NodeId> schedule(const Graph& graph);

}  // namespace trainyard
