// src/parallel/model_copy.h: copies a model's forward graph and replaces some of its nodes. The
// copy is made before differentiation, so that the gradients are those of the new nodes.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "src/graph/op.h"
#include "src/models/model_spec.h"

namespace trainyard {

class ModelCopy {
 protected:
  explicit ModelCopy(const Model& model) : from_(model), graph_(model.graph) {
    to_.products = model.products;
    to_.lookups = model.lookups;
  }
  virtual ~ModelCopy() = default;

  /// Returns the copy's description of a tensor without a producer (an input, parameter or state).
  virtual TensorInfo info_of(TensorId id) const { return graph_.tensor(id); }

  void copy_sources() {
    for (TensorId id = 0; id < std::ssize(graph_.tensors()); ++id) {
      if (graph_.tensor(id).producer == kNoNode) copies_[id] = to_.graph.add_tensor(info_of(id));
    }
  }
  void copy(NodeId k) {
    const Node& node = graph_.node(k);
    std::vector<TensorId> inputs;
    std::vector<std::string> names;
    for (const TensorId id : node.inputs) inputs.push_back(copy_of(id));
    for (const TensorId id : node.outputs) {
      names.push_back(id == kNoTensor ? "" : graph_.tensor(id).name);
    }
    const std::vector<TensorId> outputs =
        add(node.name, *node.op, node.attributes, std::move(inputs), std::move(names));
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i] != kNoTensor) copies_[node.outputs[i]] = outputs[i];
    }
  }
  std::vector<TensorId> add(std::string name, const Op& op, Attributes attributes,
                            std::vector<TensorId> inputs, std::vector<std::string> outputs) {
    const NodeId node = to_.graph
                            .add_node(std::move(name), op, std::move(attributes), std::move(inputs),
                                      std::move(outputs))
                            .value();
    return to_.graph.node(node).outputs;
  }
  TensorId copy_of(TensorId id) const { return id == kNoTensor ? id : copies_.at(id); }
  /// Completes the copy. Every tensor that is read from outside must have an entry in copies_ by
  /// then; kNoTensor means that the copy lacks the tensor.
  Model finish() {
    to_.input = copy_of(from_.input);
    to_.target = copy_of(from_.target);
    if (from_.step != kNoTensor) to_.step = copy_of(from_.step);
    to_.positions = copy_of(from_.positions);
    to_.loss = copy_of(from_.loss);
    to_.output = copy_of(from_.output);
    for (const TensorId id : graph_.outputs()) {
      if (copies_.at(id) != kNoTensor) to_.graph.mark_output(copies_.at(id));
    }
    return std::move(to_);
  }

  const Model& from_;
  const Graph& graph_;
  Model to_;
  std::map<TensorId, TensorId>
      copies_;  // original tensor -> its copy, for all tensors copied so far
};

/// Returns for each tensor the nodes that read it.
inline std::vector<std::vector<NodeId>> readers_of(const Graph& graph) {
  std::vector<std::vector<NodeId>> readers(graph.tensors().size());
  for (NodeId k = 0; k < std::ssize(graph.nodes()); ++k) {
    for (const TensorId id : graph.node(k).inputs) {
      if (id != kNoTensor) readers[static_cast<size_t>(id)].push_back(k);
    }
  }
  return readers;
}

}  // namespace trainyard
