#include "src/passes/fuse.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "src/graph/op.h"
#include "src/ops/batch_normalization.h"
#include "src/ops/batch_normalization_relu.h"
#include "src/ops/relu.h"

namespace trainyard {
namespace {

/// The nodes under change, and who reads what. A node that another has absorbed has no op any more.
class Fusion {
 public:
  explicit Fusion(Graph& graph) : graph_(graph), nodes_(graph.nodes()) {
    readers_.resize(graph.tensors().size());
    for (size_t k = 0; k < nodes_.size(); ++k) {
      for (const TensorId id : nodes_[k].inputs) {
        if (id != kNoTensor) readers_[static_cast<size_t>(id)].push_back(k);
      }
    }
  }

  void run() {
    for (size_t k = 0; k < nodes_.size(); ++k) {
      if (nodes_[k].op == batch_normalization_op()) fuse_forward(k);
    }
    for (size_t k = 0; k < nodes_.size(); ++k) {
      if (nodes_[k].op == relu_grad_op()) fuse_backward(k);
    }
    if (!changed_) return;
    std::erase_if(nodes_, [](const Node& node) { return node.op == nullptr; });
    graph_.rewrite(std::move(nodes_));
  }

 private:
  bool is_marked(TensorId id) const {
    return std::ranges::find(graph_.outputs(), id) != graph_.outputs().end();
  }
  /// The node that alone reads `id`, in its own phase; or none. What backward reads must stay.
  std::optional<size_t> only_reader(TensorId id) const {
    const auto& readers = readers_[static_cast<size_t>(id)];
    if (readers.size() != 1 || is_marked(id)) return std::nullopt;
    return readers[0];
  }
  size_t producer(TensorId id) const { return static_cast<size_t>(graph_.tensor(id).producer); }

  // Gradients and parameters are row-major always; a sweep has one layout.
  bool is_activation(TensorId id) const {
    return graph_.tensor(id).role == Role::kActivation && graph_.tensor(id).producer != kNoNode;
  }

  void fuse_forward(size_t k) {
    const std::optional<size_t> next = only_reader(nodes_[k].outputs[0]);
    if (!next || nodes_[*next].op == nullptr || nodes_[*next].phase != nodes_[k].phase) return;
    size_t relu = *next;
    TensorId residual = kNoTensor;
    if (nodes_[relu].op->type() == "Add") {
      const Node& add = nodes_[relu];
      residual = add.inputs[0] == nodes_[k].outputs[0] ? add.inputs[1] : add.inputs[0];
      const std::optional<size_t> behind = only_reader(add.outputs[0]);
      const TensorType& sum = graph_.tensor(add.outputs[0]).type;  // neither side broadcasts
      const bool alike =
          graph_.tensor(residual).type == sum && graph_.tensor(nodes_[k].outputs[0]).type == sum;
      if (!behind || !is_activation(residual) || !alike) return;
      relu = *behind;
    }
    if (nodes_[relu].op != relu_op() || nodes_[relu].phase != nodes_[k].phase) return;
    Node fused = nodes_[k];
    fused.op = batch_normalization_relu_op();
    if (residual != kNoTensor) fused.inputs.push_back(residual);
    fused.outputs[0] = nodes_[relu].outputs[0];
    if (*next != relu) absorb(*next);
    absorb(k);
    nodes_[relu] = std::move(fused);  // where all of its inputs are there
  }

  /// ReluGrad(y, dy) -> g, and a BatchNormalizationGrad that reads g.
  void fuse_backward(size_t k) {
    const Node mask = nodes_[k];
    const TensorId g = mask.outputs[0];
    if (is_marked(g) || !is_activation(g)) return;
    const auto& readers = readers_[static_cast<size_t>(g)];
    // Forward order: the last one is the normalisation that the sum was made in, not the
    // shortcut's. Any would do.
    const auto norm = std::find_if(readers.rbegin(), readers.rend(), [&](size_t r) {
      return nodes_[r].op == batch_normalization_grad_op() && nodes_[r].inputs[4] == g;
    });
    if (norm == readers.rend()) return;
    // All other inputs are of the forward pass: it can run where the mask was applied, before
    // everybody else who reads g.
    Node fused = nodes_[*norm];
    fused.op = batch_normalization_relu_grad_op();
    fused.inputs[4] = mask.inputs[1];
    const TensorId b = bias_behind(mask.inputs[0], fused);
    fused.inputs.push_back(b);
    if (b == kNoTensor) fused.inputs.push_back(mask.inputs[0]);
    fused.outputs.push_back(readers.size() > 1 ? g : kNoTensor);
    absorb(*norm);
    nodes_[k] = std::move(fused);
  }

  /// The b of the normalisation that gave y, if y is a function of its x alone.
  TensorId bias_behind(TensorId y, const Node& grad) const {
    if (graph_.tensor(y).producer == kNoNode) return kNoTensor;
    const Node& forward = nodes_[producer(y)];
    const bool same = forward.op == batch_normalization_relu_op() && forward.inputs.size() == 5 &&
                      forward.inputs[0] == grad.inputs[0] && forward.outputs[1] == grad.inputs[2];
    return same ? forward.inputs[2] : kNoTensor;
  }

  void absorb(size_t k) {
    nodes_[k].op = nullptr;
    changed_ = true;
  }

  Graph& graph_;
  std::vector<Node> nodes_;
  std::vector<std::vector<size_t>> readers_;
  bool changed_ = false;
};

}  // namespace

void fuse(Graph& graph) { Fusion(graph).run(); }

}  // namespace trainyard
