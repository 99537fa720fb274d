// src/passes/node_edits.h: the nodes of a graph while a pass merges some, and who reads what. A
// node that another has absorbed has no op any more.
#pragma once

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "src/graph/op.h"

namespace trainyard {

class NodeEdits {
 public:
  explicit NodeEdits(Graph& graph)
      : graph_(graph), nodes_(graph.nodes()), readers_(graph.tensors().size()) {
    for (size_t k = 0; k < nodes_.size(); ++k) {
      for (const TensorId id : nodes_[k].inputs) {
        if (id != kNoTensor) readers_[static_cast<size_t>(id)].push_back(k);
      }
    }
  }

  const Graph& graph() const { return graph_; }
  size_t count() const { return nodes_.size(); }
  const Node& node(size_t k) const { return nodes_[k]; }
  const TensorInfo& tensor(TensorId id) const { return graph_.tensor(id); }
  size_t producer(TensorId id) const { return static_cast<size_t>(graph_.tensor(id).producer); }

  bool is_marked(TensorId id) const {
    return std::ranges::find(graph_.outputs(), id) != graph_.outputs().end();
  }
  /// As the graph was at the beginning; in its order, a node that reads twice stands twice.
  const std::vector<size_t>& readers(TensorId id) const {
    return readers_[static_cast<size_t>(id)];
  }
  /// The node that alone reads `id`; or none. What backward reads must stay.
  std::optional<size_t> only_reader(TensorId id) const {
    if (readers(id).size() != 1 || is_marked(id)) return std::nullopt;
    return readers(id)[0];
  }
  /// Gradients and parameters are row-major always; a sweep has one layout.
  bool is_activation(TensorId id) const {
    return tensor(id).role == Role::kActivation && tensor(id).producer != kNoNode;
  }

  void absorb(size_t k) {
    nodes_[k].op = nullptr;
    changed_ = true;
  }
  void replace(size_t k, Node node) {
    nodes_[k] = std::move(node);
    changed_ = true;
  }

  void apply() {
    if (!changed_) return;
    std::erase_if(nodes_, [](const Node& node) { return node.op == nullptr; });
    graph_.rewrite(std::move(nodes_));
  }

 private:
  Graph& graph_;
  std::vector<Node> nodes_;
  std::vector<std::vector<size_t>> readers_;
  bool changed_ = false;
};

}  // namespace trainyard
