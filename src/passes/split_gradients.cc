#include "src/passes/split_gradients.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "src/graph/op.h"
#include "src/ops/conv.h"
#include "src/ops/gemm.h"

namespace trainyard {
namespace {

// The outputs of these gradients, in their order.
constexpr size_t kDx = 0, kDw = 1, kDb = 2, kDpre = 3;

bool is_product(const Node& node) {
  return node.op == gemm_grad_op() || node.op == gelu_gemm_grad_op() ||
         node.op == relu_gemm_grad_op();
}
bool is_convolution(const Node& node) {
  return node.op == conv_grad_op() || node.op->type() == "ConvTransposeGrad";
}

/// Returns whether a GPU's kernel narrows dy once for both products (src/runtime/cuda/gemm.cc).
bool narrows_once(const Graph& graph, const Node& node) {
  const TensorInfo &x = graph.tensor(node.inputs[0]), &dy = graph.tensor(node.inputs[2]);
  return is_product(node) && x.is_half() && !dy.is_half();
}

bool has_both(const Node& node) {
  return node.outputs.at(kDx) != kNoTensor && node.outputs.at(kDw) != kNoTensor;
}

/// Moves outputs to a node of its own.
Node take(Node& node, std::initializer_list<size_t> outputs) {
  Node taken = node;
  taken.name += "/weights";
  taken.outputs.assign(node.outputs.size(), kNoTensor);
  for (const size_t i : outputs) {
    taken.outputs[i] = std::exchange(node.outputs[i], kNoTensor);
  }
  return taken;
}

/// Returns the gradients of weight and bias as a node that does not read what only the activation
/// before the product needs.
Node take_of_product(Node& node) {
  Node weights = take(node, {kDw, kDb});
  weights.op = gemm_grad_op();
  weights.inputs.resize(3);
  weights.attributes = {};
  for (const auto& [name, value] : node.attributes.items()) {
    if (name != kApproximate) weights.attributes.set(name, value);
  }
  return weights;
}

/// Returns the gradient of the filter as a node that reads the gradient before ReLU.
Node take_behind_relu(Node& node) {
  Node weights = take(node, {kDw});
  weights.op = conv_grad_op();
  weights.inputs = {node.inputs[0], node.inputs[1], node.outputs[kDpre]};
  weights.outputs.resize(kDb + 1);
  return weights;
}

}  // namespace

void split_gradients(Graph& graph) {
  std::vector<Node> nodes;
  const auto is_constant = [](const Node& node) { return node.inputs.empty(); };
  std::ranges::copy_if(graph.nodes(), std::back_inserter(nodes), is_constant);
  for (const Node& node : graph.nodes()) {
    if (is_constant(node)) continue;
    Node rest = node;
    if ((is_product(node) || is_convolution(node)) && has_both(node) &&
        !narrows_once(graph, node)) {
      nodes.push_back(is_product(node) ? take_of_product(rest) : take(rest, {kDw, kDb}));
      nodes.push_back(std::move(rest));
    } else if (node.op == relu_conv_grad_op() && has_both(node)) {
      Node weights = take_behind_relu(rest);
      nodes.push_back(std::move(rest));
      nodes.push_back(std::move(weights));
    } else {
      nodes.push_back(std::move(rest));
    }
  }
  graph.rewrite(std::move(nodes));
}

}  // namespace trainyard
