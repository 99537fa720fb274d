#include "src/passes/recompute_gates.h"

#include <algorithm>

#include "src/passes/node_edits.h"

namespace trainyard {

namespace {

class Gates {
 public:
  explicit Gates(Graph& graph)
      : graph_(graph), readers_(graph.tensors().size()), insertions_(graph) {
    for (NodeId k = 0; k < std::ssize(graph.nodes()); ++k) {
      for (const TensorId id : graph.node(k).inputs) {
        if (id != kNoTensor) readers_[static_cast<size_t>(id)].push_back(k);
      }
    }
  }

  void run() {
    for (size_t k = 0; k < insertions_.count(); ++k) {
      if (insertions_.node(k).op->type() != "MulGrad") continue;
      for (size_t i = 0; i < 2; ++i) compute_again(k, i);
    }
    insertions_.apply();
  }

 private:
  /// Gives input i of MulGrad k, if it is a gate, as a tensor that is computed right before it is
  /// needed.
  void compute_again(size_t k, size_t i) {
    const TensorId gate = insertions_.node(k).inputs[i];
    if (!is_gate(gate)) return;
    const Node node = graph_.node(graph_.tensor(gate).producer);
    const std::vector<TensorId> forms = forms_of_product(gate);
    size_t first = k;
    for (const TensorId id : forms) {
      for (const NodeId reader : gradients_of(id)) {
        first = std::min(first, static_cast<size_t>(reader));
      }
    }
    const TensorId again =
        insertions_.insert_before(first, graph_.tensor(gate).name + "/again", *node.op,
                                  node.inputs[0], Phase::kBackward, node.attributes);
    graph_.set_layout(again, graph_.tensor(gate).layout);
    insertions_.replace_input(k, i, again);
    if (first < k) compute_product_again(gate, again, forms, first);
  }

  void compute_product_again(TensorId gate, TensorId again, const std::vector<TensorId>& forms,
                             size_t first) {
    const Node product = *product_of(gate);
    std::vector<TensorId> factors = product.inputs;
    std::ranges::replace(factors, gate, again);
    const TensorId y = product.outputs[0];
    const TensorId y_again = insertions_.insert_before(
        first, graph_.tensor(y).name + "/again", *product.op, std::move(factors), Phase::kBackward);
    graph_.set_layout(y_again, graph_.tensor(y).layout);
    replace_in_gradients(y, y_again);
    for (const TensorId id : forms) {
      if (id == y || gradients_of(id).empty()) continue;
      const Node reshape = graph_.node(graph_.tensor(id).producer);
      replace_in_gradients(
          id, insertions_.insert_before(first, graph_.tensor(id).name + "/again", *reshape.op,
                                        y_again, Phase::kBackward, reshape.attributes));
    }
  }
  void replace_in_gradients(TensorId id, TensorId again) {
    for (const NodeId reader : gradients_of(id)) {
      const std::vector<TensorId> inputs = graph_.node(reader).inputs;
      for (size_t i = 0; i < inputs.size(); ++i) {
        if (inputs[i] == id) insertions_.replace_input(static_cast<size_t>(reader), i, again);
      }
    }
  }

  /// Returns whether `id` is an activation that only a product and its gradient read, and whose own
  /// gradient keeps what the activation is computed from.
  bool is_gate(TensorId id) const {
    const NodeId producer = graph_.tensor(id).producer;
    if (producer == kNoNode || is_marked(id)) return false;
    const Node& node = graph_.node(producer);
    const std::string_view op = node.op->type();
    if ((op != "Swish" && op != "Gelu") || node.phase != Phase::kForward) return false;
    return readers_of(id).size() == 2 && keeps_x(node);
  }
  /// Returns whether the gradient of `node`, which computes an activation of x, keeps x.
  bool keeps_x(const Node& node) const {
    const std::string gradient = std::string(node.op->type()) + "Grad";
    return std::ranges::any_of(readers_of(node.inputs[0]), [&](NodeId k) {
      const Node& reader = graph_.node(k);
      return reader.op->type() == gradient && reader.inputs[0] == node.inputs[0] &&
             reader.phase == Phase::kBackward;
    });
  }
  const Node* product_of(TensorId gate) const {
    for (const NodeId k : readers_of(gate)) {
      if (graph_.node(k).op->type() == "Mul") return &graph_.node(k);
    }
    return nullptr;
  }
  /// Returns the gate's product, and this product reshaped; nothing if one of them must be kept.
  std::vector<TensorId> forms_of_product(TensorId gate) const {
    const Node* product = product_of(gate);
    if (product == nullptr) return {};
    std::vector<TensorId> forms = {product->outputs[0]};
    for (const NodeId k : readers_of(product->outputs[0])) {
      if (graph_.node(k).op->type() == "Reshape") forms.push_back(graph_.node(k).outputs[0]);
    }
    const bool is_kept = std::ranges::any_of(forms, [&](TensorId id) { return is_marked(id); });
    return is_kept ? std::vector<TensorId>() : forms;
  }
  /// Returns the nodes of the backward pass that read a tensor.
  std::vector<NodeId> gradients_of(TensorId id) const {
    std::vector<NodeId> gradients;
    for (const NodeId k : readers_of(id)) {
      if (graph_.node(k).phase == Phase::kBackward) gradients.push_back(k);
    }
    return gradients;
  }
  const std::vector<NodeId>& readers_of(TensorId id) const {
    return readers_[static_cast<size_t>(id)];
  }
  bool is_marked(TensorId id) const {
    return std::ranges::find(graph_.outputs(), id) != graph_.outputs().end();
  }

  Graph& graph_;
  std::vector<std::vector<NodeId>> readers_;
  NodeInsertions insertions_;
};

}  // namespace

void recompute_gates(Graph& graph) { Gates(graph).run(); }

}  // namespace trainyard
