#include "src/passes/fuse_convolutions.h"

#include <optional>

#include "src/ops/activation.h"
#include "src/ops/conv.h"
#include "src/passes/node_edits.h"

namespace trainyard {
namespace {

class Convolutions : public NodeEdits {
 public:
  using NodeEdits::NodeEdits;

  void run() {
    for (size_t k = 0; k < count(); ++k) {
      if (node(k).op == conv_op()) fuse_forward(k);
      if (node(k).op == relu_grad_op()) fuse_backward(k);
    }
    apply();
  }

 private:
  /// A convolution without a bias is not fused, since there would be no sweep over y to share.
  void fuse_forward(size_t k) {
    if (node(k).inputs.size() < 3 || node(k).inputs[2] == kNoTensor) return;
    const std::optional<size_t> relu = only_reader(node(k).outputs[0]);
    if (!relu || node(*relu).op != relu_op() || node(*relu).phase != node(k).phase) return;
    Node fused = node(k);
    fused.op = conv_relu_op();
    fused.outputs[0] = node(*relu).outputs[0];
    absorb(*relu);
    replace(k, std::move(fused));
  }

  void fuse_backward(size_t k) {
    const TensorId y = node(k).inputs[0], dy = node(k).inputs[1], dpre = node(k).outputs[0];
    if (!is_activation(y) || !is_activation(dy) || !is_activation(dpre)) return;
    const std::optional<size_t> grad = only_reader(dpre);
    if (!grad || node(*grad).op != conv_grad_op() || node(*grad).outputs[2] == kNoTensor) return;
    if (node(*grad).inputs[2] != dpre || node(*grad).phase != node(k).phase) return;
    Node fused = node(*grad);
    fused.op = relu_conv_grad_op();
    fused.inputs[2] = dy;
    fused.inputs.push_back(y);
    fused.outputs.push_back(dpre);
    absorb(k);
    replace(*grad, std::move(fused));
  }
};

}  // namespace

void fuse_convolutions(Graph& graph) { Convolutions(graph).run(); }

}  // namespace trainyard
