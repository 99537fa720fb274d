#include "src/passes/fuse.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "src/graph/op.h"
#include "src/ops/activation.h"
#include "src/ops/add.h"
#include "src/ops/batch_normalization.h"
#include "src/ops/batch_normalization_relu.h"
#include "src/passes/node_edits.h"

namespace trainyard {
namespace {

class Fusion : public NodeEdits {
 public:
  using NodeEdits::NodeEdits;

  void run() {
    for (size_t k = 0; k < count(); ++k) {
      if (node(k).op == batch_normalization_op()) fuse_forward(k);
    }
    for (size_t k = 0; k < count(); ++k) {
      if (node(k).op == relu_grad_op()) fuse_backward(k);
    }
    apply();
  }

 private:
  void fuse_forward(size_t k) {
    const std::optional<size_t> next = only_reader(node(k).outputs[0]);
    if (!next || node(*next).op == nullptr || node(*next).phase != node(k).phase) return;
    size_t relu = *next;
    TensorId residual = kNoTensor;
    if (node(relu).op == add_op()) {
      const Node& add = node(relu);
      residual = add.inputs[0] == node(k).outputs[0] ? add.inputs[1] : add.inputs[0];
      const std::optional<size_t> behind = only_reader(add.outputs[0]);
      // Both operands must have this type, so that nothing is broadcast.
      const TensorType& sum = tensor(add.outputs[0]).type;
      const bool alike = tensor(residual).type == sum && tensor(node(k).outputs[0]).type == sum;
      if (!behind || !is_activation(residual) || !alike) return;
      relu = *behind;
    }
    if (node(relu).op != relu_op() || node(relu).phase != node(k).phase) return;
    Node fused = node(k);
    fused.op = batch_normalization_relu_op();
    if (residual != kNoTensor) fused.inputs.push_back(residual);
    fused.outputs[0] = node(relu).outputs[0];
    if (*next != relu) absorb(*next);
    absorb(k);
    replace(relu, std::move(fused));  // at the place of the ReLU, where all inputs exist
  }

  /// Fuses ReluGrad(y, dy) -> g with a BatchNormalizationGrad that reads g.
  void fuse_backward(size_t k) {
    const Node mask = node(k);
    const TensorId g = mask.outputs[0];
    if (is_marked(g) || !is_activation(g)) return;
    const auto& readers = this->readers(g);
    // If several normalizations read g, the last one is that which was fused with the sum, not the
    // one in the shortcut. Either would be correct.
    const auto norm = std::find_if(readers.rbegin(), readers.rend(), [&](size_t r) {
      return node(r).op == batch_normalization_grad_op() && node(r).inputs[4] == g;
    });
    if (norm == readers.rend()) return;
    // All other inputs come from the forward pass, so the fused node can run in place of the
    // ReluGrad, before all other readers of g.
    Node fused = node(*norm);
    fused.op = batch_normalization_relu_grad_op();
    fused.inputs[4] = mask.inputs[1];
    const TensorId b = bias_behind(mask.inputs[0], fused);
    fused.inputs.push_back(b);
    if (b == kNoTensor) fused.inputs.push_back(mask.inputs[0]);
    fused.outputs.push_back(readers.size() > 1 ? g : kNoTensor);
    absorb(*norm);
    replace(k, std::move(fused));
  }

  /// Returns the input b of the normalization that computed y; kNoTensor if y also depends on a
  /// residual.
  TensorId bias_behind(TensorId y, const Node& grad) const {
    if (tensor(y).producer == kNoNode) return kNoTensor;
    const Node& forward = node(producer(y));
    const bool same = forward.op == batch_normalization_relu_op() && forward.inputs.size() == 5 &&
                      forward.inputs[0] == grad.inputs[0] && forward.outputs[1] == grad.inputs[2];
    return same ? forward.inputs[2] : kNoTensor;
  }
};

}  // namespace

void fuse(Graph& graph) { Fusion(graph).run(); }

}  // namespace trainyard
