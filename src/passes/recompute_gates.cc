#include "src/passes/recompute_gates.h"

#include <algorithm>

#include "src/passes/node_edits.h"

namespace trainyard {

namespace {

/// Returns whether the gradient of `node`, which computes an activation of x, keeps x.
bool keeps_x(const Graph& graph, const Node& node, const std::vector<NodeId>& readers_of_x) {
  const std::string gradient = std::string(node.op->type()) + "Grad";
  return std::ranges::any_of(readers_of_x, [&](NodeId k) {
    const Node& reader = graph.node(k);
    return reader.op->type() == gradient && reader.inputs[0] == node.inputs[0] &&
           reader.phase == Phase::kBackward;
  });
}

}  // namespace

void recompute_gates(Graph& graph) {
  std::vector<std::vector<NodeId>> readers(graph.tensors().size());
  for (NodeId k = 0; k < std::ssize(graph.nodes()); ++k) {
    for (const TensorId id : graph.node(k).inputs) {
      if (id != kNoTensor) readers[static_cast<size_t>(id)].push_back(k);
    }
  }
  const auto is_marked = [&](TensorId id) {
    return std::ranges::find(graph.outputs(), id) != graph.outputs().end();
  };
  NodeInsertions insertions(graph);
  for (size_t k = 0; k < insertions.count(); ++k) {
    if (insertions.node(k).op->type() != "MulGrad") continue;
    for (size_t i = 0; i < 2; ++i) {
      const TensorId gate = insertions.node(k).inputs[i];
      const NodeId producer = graph.tensor(gate).producer;
      if (producer == kNoNode || is_marked(gate)) continue;
      const Node node = graph.node(producer);
      const std::string_view op = node.op->type();
      if ((op != "Swish" && op != "Gelu") || node.phase != Phase::kForward) continue;
      // The product and its gradient.
      if (readers[static_cast<size_t>(gate)].size() != 2) continue;
      if (!keeps_x(graph, node, readers[static_cast<size_t>(node.inputs[0])])) continue;
      const TensorId again =
          insertions.insert_before(k, graph.tensor(gate).name + "/again", *node.op, node.inputs[0],
                                   Phase::kBackward, node.attributes);
      graph.set_layout(again, graph.tensor(gate).layout);
      insertions.replace_input(k, i, again);
    }
  }
  insertions.apply();
}

}  // namespace trainyard
