// src/plan/schedule.h: determines the order in which the nodes of a graph run.
#pragma once

#include <cstdint>
#include <vector>

#include "src/graph/graph.h"

namespace trainyard {

/// An update of at most kDeferredEachMax bytes of gradients waits for others, until all waiting
/// updates keep up to kDeferredMax bytes alive. A launch costs a GPU 1 to 2 us in addition to its
/// work; for Adam on 64 Ki parameters (28 bytes each), the work takes 0.4 us on an H200.
constexpr int64_t kDeferredEachMax = int64_t{256} << 10;
constexpr int64_t kDeferredMax = int64_t{4} << 20;

/// Returns the graph's own order, except for updates of parameters. A large update runs as soon as
/// its gradient is available and no node needs the old value: the memory of the gradient is then
/// free for the rest of backward, and both are still in cache. Small updates wait for each other
/// and then run one after another, sorted by kind, so that a backend can run them in one launch
/// (Backend::prepare_group). At most kDeferredMax bytes of gradients live longer because of this.
std::vector<NodeId> schedule(const Graph& graph);

}  // namespace trainyard
