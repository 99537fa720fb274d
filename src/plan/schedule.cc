#include "src/plan/schedule.h"

#include <set>

#include "src/base/check.h"
#include "src/graph/op.h"

namespace trainyard {
namespace {

/// For each update node, the nodes that must run before it.
std::vector<std::set<NodeId>> update_predecessors(const Graph& graph) {
  std::vector<std::vector<NodeId>> readers(graph.tensors().size());
  for (NodeId k = 0; k < static_cast<NodeId>(graph.nodes().size()); ++k) {
    for (const TensorId id : graph.node(k).inputs) {
      if (id != kNoTensor) readers[static_cast<size_t>(id)].push_back(k);
    }
  }
  std::vector<std::set<NodeId>> before(graph.nodes().size());
  for (NodeId k = 0; k < static_cast<NodeId>(graph.nodes().size()); ++k) {
    const Node& node = graph.node(k);
    if (node.phase != Phase::kUpdate) continue;
    auto& mine = before[static_cast<size_t>(k)];
    for (const TensorId id : node.inputs) {
      if (id != kNoTensor && graph.tensor(id).producer != kNoNode) {
        mine.insert(graph.tensor(id).producer);
      }
    }
    for (const int64_t i : node.op->mutated_inputs()) {
      const TensorId id = node.inputs.at(static_cast<size_t>(i));
      if (id == kNoTensor) continue;
      for (const NodeId reader : readers[static_cast<size_t>(id)]) {
        if (reader != k) mine.insert(reader);
      }
    }
  }
  return before;
}

}  // namespace

std::vector<NodeId> schedule(const Graph& graph) {
  const std::vector<std::set<NodeId>> before = update_predecessors(graph);
  std::vector<size_t> waiting(before.size());
  std::vector<std::vector<NodeId>> releases(before.size());
  for (size_t k = 0; k < before.size(); ++k) {
    waiting[k] = before[k].size();
    for (const NodeId b : before[k])
      releases[static_cast<size_t>(b)].push_back(static_cast<NodeId>(k));
  }
  std::vector<NodeId> order;
  std::vector<bool> done(before.size());
  const auto append = [&](NodeId first) {
    std::vector<NodeId> ready{first};  // a queue: an update may release another update
    for (size_t at = 0; at < ready.size(); ++at) {
      order.push_back(ready[at]);
      done[static_cast<size_t>(ready[at])] = true;
      for (const NodeId next : releases[static_cast<size_t>(ready[at])]) {
        if (--waiting[static_cast<size_t>(next)] == 0) ready.push_back(next);
      }
    }
  };
  for (NodeId k = 0; k < static_cast<NodeId>(before.size()); ++k) {
    if (graph.node(k).phase != Phase::kUpdate) append(k);
    if (graph.node(k).phase == Phase::kUpdate && !done[static_cast<size_t>(k)] &&
        before[static_cast<size_t>(k)].empty()) {
      append(k);  // reads no computed tensor; no node releases it
    }
  }
  TRAINYARD_CHECK(order.size() == graph.nodes().size(), "the update nodes wait for each other");
  return order;
}

}  // namespace trainyard
