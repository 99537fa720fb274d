// src/passes/node_edits.h: edits of the nodes of a graph, for passes that merge or insert nodes.
// Both classes change the graph once, at the end, because each change takes time proportional to
// the graph.
#pragma once

#include <algorithm>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/base/check.h"
#include "src/graph/op.h"

namespace trainyard {

/// Readers of tensors, and replacements of nodes. A node that was absorbed into another has no op.
class NodeEdits {
 public:
  explicit NodeEdits(Graph& graph) : graph_(graph), readers_(graph.tensors().size()) {
    for (const Node& node : graph.nodes()) nodes_.push_back(&node);
    for (size_t k = 0; k < nodes_.size(); ++k) {
      for (const TensorId id : nodes_[k]->inputs) {
        if (id != kNoTensor) readers_[static_cast<size_t>(id)].push_back(k);
      }
    }
  }

  const Graph& graph() const { return graph_; }
  size_t count() const { return nodes_.size(); }
  const Node& node(size_t k) const { return *nodes_[k]; }
  const TensorInfo& tensor(TensorId id) const { return graph_.tensor(id); }
  size_t producer(TensorId id) const { return static_cast<size_t>(graph_.tensor(id).producer); }

  bool is_marked(TensorId id) const {
    return std::ranges::find(graph_.outputs(), id) != graph_.outputs().end();
  }
  /// Returns the readers in the original graph, in its order. A node that reads `id` twice is
  /// listed twice.
  const std::vector<size_t>& readers(TensorId id) const {
    return readers_[static_cast<size_t>(id)];
  }
  /// Returns the only reader of `id`; none if there are several or `id` is a marked output, which
  /// must stay.
  std::optional<size_t> only_reader(TensorId id) const {
    if (readers(id).size() != 1 || is_marked(id)) return std::nullopt;
    return readers(id)[0];
  }
  /// Returns whether `id` is a computed activation. Gradients of parameters and parameters are
  /// excluded: they are always row-major, and the operands of a fused op must share a layout.
  bool is_activation(TensorId id) const {
    return tensor(id).role == Role::kActivation && tensor(id).producer != kNoNode;
  }

  void absorb(size_t k) {
    nodes_[k] = &absorbed_;
    changed_ = true;
  }
  void replace(size_t k, Node node) {
    nodes_[k] = &edited_.emplace_back(std::move(node));
    changed_ = true;
  }

  void apply() {
    if (!changed_) return;
    std::vector<Node> rest;
    for (const Node* node : nodes_) {
      if (node->op != nullptr) rest.push_back(*node);
    }
    graph_.rewrite(std::move(rest));
  }

 private:
  Graph& graph_;
  const Node absorbed_{};
  // Copies of edited nodes only, since a pass edits few nodes of a large graph.
  std::deque<Node> edited_;
  std::vector<const Node*> nodes_;  // nodes of the graph, of edited_, or absorbed_
  std::vector<std::vector<size_t>> readers_;
  bool changed_ = false;
};

/// Inserts nodes with one output, which has the node's name. Positions of nodes are
/// those in the original graph.
class NodeInsertions {
 public:
  explicit NodeInsertions(Graph& graph)
      : graph_(graph), nodes_(graph.nodes()), before_(nodes_.size()) {}

  size_t count() const { return nodes_.size(); }
  const Node& node(size_t k) const { return nodes_[k]; }

  /// Inserts a node before node k, after those inserted there earlier. Returns its output.
  TensorId insert_before(size_t k, const std::string& name, const Op& op, TensorId input,
                         Phase phase, Attributes attributes = {}) {
    return insert(before_[k], name, op, {input}, phase, std::move(attributes));
  }
  TensorId insert_before(size_t k, const std::string& name, const Op& op,
                         std::vector<TensorId> inputs, Phase phase) {
    return insert(before_[k], name, op, std::move(inputs), phase, {});
  }
  /// Inserts a node before all nodes, after those inserted there earlier. Returns its output.
  TensorId insert_first(const std::string& name, const Op& op, TensorId input, Phase phase) {
    return insert(first_, name, op, {input}, phase, {});
  }
  /// Makes node k read another tensor of the same type.
  void replace_input(size_t k, size_t i, TensorId id) {
    TRAINYARD_CHECK(graph_.tensor(nodes_[k].inputs.at(i)).type == graph_.tensor(id).type,
                    nodes_[k].name + ": a replaced input keeps its type");
    nodes_[k].inputs[i] = id;
    changed_ = true;
  }

  void apply() {
    if (!changed_) return;
    std::vector<Node> all;
    const auto append = [&](const std::vector<NodeId>& inserted) {
      for (const NodeId id : inserted) all.push_back(graph_.node(id));
    };
    append(first_);
    for (size_t k = 0; k < nodes_.size(); ++k) {
      append(before_[k]);
      all.push_back(std::move(nodes_[k]));
    }
    graph_.rewrite(std::move(all));
  }

 private:
  /// Adds a node at the end of the graph, where its inputs exist; apply() moves it.
  TensorId insert(std::vector<NodeId>& place, const std::string& name, const Op& op,
                  std::vector<TensorId> inputs, Phase phase, Attributes attributes) {
    place.push_back(
        graph_.add_node(name, op, std::move(attributes), std::move(inputs), {name}, phase).value());
    changed_ = true;
    return graph_.node(place.back()).outputs[0];
  }

  Graph& graph_;
  std::vector<Node> nodes_;
  std::vector<NodeId> first_;
  std::vector<std::vector<NodeId>> before_;  // by node: the nodes inserted before it
  bool changed_ = false;
};

}  // namespace trainyard
