#include "src/passes/fuse_head.h"

#include <optional>
#include <vector>

#include "src/ops/gemm.h"
#include "src/ops/head_loss.h"
#include "src/ops/reshape.h"
#include "src/ops/softmax_xent.h"
#include "src/passes/node_edits.h"

namespace trainyard {
namespace {

class Heads : public NodeEdits {
 public:
  Heads(Graph& graph, Processor processor) : NodeEdits(graph), processor_(processor) {}

  void run() {
    for (size_t k = 0; k < count(); ++k) {
      if (node(k).op == softmax_xent_op()) fuse(k);
    }
    apply();
  }

 private:
  /// Returns the Gemm that computes `id`, directly or through reshapes, if each result is read only
  /// by the next node. Adds the Gemm and the reshapes to `absorbed`.
  std::optional<size_t> gemm_before(TensorId id, std::vector<size_t>& absorbed) const {
    while (tensor(id).producer != kNoNode && only_reader(id)) {
      const size_t k = producer(id);
      absorbed.push_back(k);
      if (node(k).op == gemm_op()) return k;
      if (node(k).op != reshape_op()) break;
      id = node(k).inputs[0];
    }
    return std::nullopt;
  }
  /// Returns the GemmGrad that reads `id` as the gradient of the product, directly or through
  /// reshapes, if each result has no other reader. Adds the reshapes to `absorbed`.
  std::optional<size_t> gemm_grad_behind(TensorId id, std::vector<size_t>& absorbed) const {
    for (std::optional<size_t> k = only_reader(id); k; k = only_reader(id)) {
      if (node(*k).op == gemm_grad_op() && node(*k).inputs[2] == id) return k;
      if (node(*k).op != reshape_grad_op()) break;
      absorbed.push_back(*k);
      id = node(*k).outputs[0];
    }
    return std::nullopt;
  }

  void fuse(size_t k) {
    const Node& loss = node(k);
    const TensorId labels = loss.inputs[1], prob = loss.outputs[1];
    if (tensor(labels).type.dtype != DType::kI32 || !readers(loss.outputs[0]).empty()) return;
    const std::optional<size_t> grad = only_reader(prob);
    if (!grad || node(*grad).op != softmax_xent_grad_op()) return;
    std::vector<size_t> absorbed = {k, *grad};
    const std::optional<size_t> gemm = gemm_before(loss.inputs[0], absorbed);
    const std::optional<size_t> gemm_grad = gemm_grad_behind(node(*grad).outputs[0], absorbed);
    if (!gemm || !gemm_grad) return;
    const Node &head = node(*gemm), &behind = node(*gemm_grad);
    if (behind.inputs[0] != head.inputs[0] || behind.inputs[1] != head.inputs[1]) return;
    const bool is_trained = behind.outputs[1] != kNoTensor || behind.outputs[2] != kNoTensor;
    if (processor_ == Processor::kCpu && is_trained) return;

    Node fused = head;
    fused.op = head_loss_op();
    for (const char* name : {"label_smoothing", "ignore_index", "class_weights"}) {
      const Attribute* value = loss.attributes.find(name);
      if (value != nullptr) fused.attributes.set(name, *value);
    }
    fused.inputs = {head.inputs[0], head.inputs[1], labels, node(*grad).inputs[2]};
    if (head.inputs.size() > 2) fused.inputs.push_back(head.inputs[2]);
    fused.outputs = {loss.outputs[0], behind.outputs[0], behind.outputs[1], behind.outputs[2]};
    fused.phase = behind.phase;
    for (const size_t i : absorbed) absorb(i);
    replace(*gemm_grad, std::move(fused));  // at a place where all inputs exist
  }

  const Processor processor_;
};

}  // namespace

void fuse_head(Graph& graph, Processor processor) { Heads(graph, processor).run(); }

}  // namespace trainyard
