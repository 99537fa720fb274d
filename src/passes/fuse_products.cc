#include "src/passes/fuse_products.h"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "src/ops/activation.h"
#include "src/ops/gemm.h"
#include "src/ops/reshape.h"
#include "src/passes/node_edits.h"

namespace trainyard {
namespace {

class Products : public NodeEdits {
 public:
  Products(Graph& graph, bool takes_exact) : NodeEdits(graph), takes_exact_(takes_exact) {}

  void run() {
    for (size_t k = 0; k < count(); ++k) {
      if (is_gelu(k, gelu_op())) fuse_forward(k);
      if (is_gelu(k, gelu_grad_op())) fuse_backward(k);
    }
    remove_unread_reshapes();
    apply();
  }

 private:
  static bool is_exact(const Node& gelu) {
    return gelu.attributes.get_string(kApproximate, "none") == "none";
  }
  bool is_gelu(size_t k, const Op* op) const {
    return node(k).op == op && (takes_exact_ || !is_exact(node(k)));
  }
  static bool is_reshape(const Node& n) {
    return n.op == reshape_op() || n.op == reshape_grad_op();
  }

  /// Returns the tensor of which `id` is a reshape, through any number of reshapes.
  TensorId shaped_from(TensorId id) const {
    while (tensor(id).producer != kNoNode && node(producer(id)).op != nullptr &&
           is_reshape(node(producer(id)))) {
      id = node(producer(id)).inputs[0];
    }
    return id;
  }
  /// Returns `id` if it has the type of `like`, or else the result of its only reader, if that is a
  /// reshape to this type. `reader` is set to that reshape.
  std::optional<TensorId> shaped_as(TensorId id, TensorId like,
                                    std::optional<size_t>* reader) const {
    if (tensor(id).type == tensor(like).type) return id;
    const std::optional<size_t> next = only_reader(id);
    if (!next || node(*next).op == nullptr || !is_reshape(node(*next))) return std::nullopt;
    const TensorId shaped = node(*next).outputs[0];
    if (tensor(shaped).type != tensor(like).type) return std::nullopt;
    *reader = *next;
    return shaped;
  }
  /// Returns whether any node but k reads `id` or a reshape of it.
  bool has_other_reader(TensorId id, size_t k) const {
    if (is_marked(id)) return true;
    for (const size_t reader : readers(id)) {
      if (reader == k || node(reader).op == nullptr) continue;
      if (!is_reshape(node(reader)) || has_other_reader(node(reader).outputs[0], k)) return true;
    }
    return false;
  }

  void fuse_forward(size_t k) {
    const TensorId product = shaped_from(node(k).inputs[0]);
    if (tensor(product).producer == kNoNode) return;
    const size_t gemm = producer(product);
    if (node(gemm).op != gemm_op() || node(gemm).phase != node(k).phase) return;
    std::optional<size_t> reshape;
    const std::optional<TensorId> y = shaped_as(node(k).outputs[0], product, &reshape);
    if (!y) return;
    Node fused = node(gemm);
    fused.op = gemm_gelu_op();
    if (is_exact(node(k))) fused.attributes.set(kApproximate, std::string("none"));
    fused.outputs = {*y, has_other_reader(product, k) ? product : kNoTensor};
    absorb(k);
    if (reshape) absorb(*reshape);
    replace(gemm, std::move(fused));
  }

  void fuse_backward(size_t k) {
    const TensorId dx = shaped_from(node(k).inputs[1]);
    if (tensor(dx).producer == kNoNode) return;
    const size_t gemm = producer(dx);
    if (node(gemm).op != gemm_grad_op() || node(gemm).outputs[0] != dx) return;
    if (has_other_reader(dx, k)) return;
    const TensorId pre = shaped_from(node(k).inputs[0]);
    std::optional<size_t> reshape;
    const std::optional<TensorId> dpre = shaped_as(node(k).outputs[0], dx, &reshape);
    if (!dpre || tensor(pre).type != tensor(dx).type) return;
    // If `pre` is recomputed in the backward pass, it may not exist yet at the place of the
    // product.
    if (tensor(pre).producer != kNoNode && producer(pre) > gemm) return;
    Node fused = node(gemm);
    fused.op = gelu_gemm_grad_op();
    if (is_exact(node(k))) fused.attributes.set(kApproximate, std::string("none"));
    fused.inputs.push_back(pre);
    fused.outputs[0] = *dpre;
    absorb(k);
    if (reshape) absorb(*reshape);
    replace(gemm, std::move(fused));
  }

  void remove_unread_reshapes() {
    for (size_t k = count(); k-- > 0;) {
      if (node(k).op == nullptr || !is_reshape(node(k)) || is_marked(node(k).outputs[0])) continue;
      const TensorId id = node(k).outputs[0];
      const bool is_read = std::ranges::any_of(readers(id), [&](size_t reader) {
        return node(reader).op != nullptr && std::ranges::count(node(reader).inputs, id) > 0;
      });
      if (!is_read) absorb(k);
    }
  }

  bool takes_exact_;
};

class ReluProducts : public NodeEdits {
 public:
  using NodeEdits::NodeEdits;

  void run() {
    for (size_t k = 0; k < count(); ++k) {
      if (node(k).op == relu_op()) fuse_forward(k);
    }
    for (size_t k = 0; k < count(); ++k) {
      if (node(k).op == relu_grad_op()) fuse_backward(k);
    }
    apply();
  }

 private:
  void fuse_forward(size_t k) {
    const TensorId product = node(k).inputs[0];
    if (!is_activation(product) || only_reader(product) != k) return;
    const size_t gemm = producer(product);
    if (node(gemm).op != gemm_op() || node(gemm).phase != node(k).phase) return;
    Node fused = node(gemm);
    fused.op = gemm_relu_op();
    fused.outputs = {node(k).outputs[0], kNoTensor};
    fused_.insert(fused.outputs[0]);
    absorb(k);
    replace(gemm, std::move(fused));
  }

  void fuse_backward(size_t k) {
    const TensorId y = node(k).inputs[0], dy = node(k).inputs[1];
    if (!fused_.contains(y) || !is_activation(dy) || only_reader(dy) != k) return;
    const size_t gemm = producer(dy);
    if (node(gemm).op != gemm_grad_op() || node(gemm).outputs[0] != dy) return;
    if (node(gemm).inputs[0] != y) return;
    Node fused = node(gemm);
    fused.op = relu_gemm_grad_op();
    fused.inputs.push_back(kNoTensor);
    fused.outputs[0] = node(k).outputs[0];
    absorb(k);
    replace(gemm, std::move(fused));
  }

  std::set<TensorId> fused_;  // the outputs of GemmRelu nodes
};

/// For every GemmRelu with a ReluGemmGrad, adds a mask as an output of the GemmRelu and an input of
/// the ReluGemmGrad.
void add_masks(Graph& graph) {
  std::vector<Node> nodes = graph.nodes();
  std::map<TensorId, Node*> gradients;  // ReluGemmGrad nodes, by their input x
  for (Node& node : nodes) {
    if (node.op == relu_gemm_grad_op()) gradients[node.inputs[0]] = &node;
  }
  if (gradients.empty()) return;
  for (Node& node : nodes) {
    if (node.op != gemm_relu_op() || !gradients.contains(node.outputs[0])) continue;
    const std::string& y = graph.tensor(node.outputs[0]).name;
    // This node only creates the tensor of the mask; rewrite() drops the node.
    const NodeId added = graph
                             .add_node(node.name + "/mask", *node.op, node.attributes, node.inputs,
                                       {y + "/mask/y", y + "/mask"}, node.phase)
                             .value();
    node.outputs[1] = graph.node(added).outputs[1];
    gradients[node.outputs[0]]->inputs[3] = node.outputs[1];
  }
  graph.rewrite(std::move(nodes));
}

}  // namespace

void fuse_products(Graph& graph, Processor processor) {
  Products(graph, /*takes_exact=*/processor == Processor::kGpu).run();
}

void fuse_relu_products(Graph& graph) {
  ReluProducts(graph).run();
  add_masks(graph);
}

}  // namespace trainyard
