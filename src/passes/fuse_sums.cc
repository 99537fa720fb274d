#include "src/passes/fuse_sums.h"

#include <optional>

#include "src/ops/add.h"
#include "src/ops/batch_normalization_relu.h"
#include "src/ops/dropout.h"
#include "src/ops/layer_normalization.h"
#include "src/passes/node_edits.h"

namespace trainyard {
namespace {

class Sums : public NodeEdits {
 public:
  using NodeEdits::NodeEdits;

  void run() {
    for (size_t k = 0; k < count(); ++k) {
      if (node(k).op == layer_normalization_op()) fuse_forward(k, *skip_layer_normalization_op());
      if (node(k).op == rms_normalization_op()) fuse_forward(k, *skip_rms_normalization_op());
      if (node(k).op == layer_normalization_grad_op()) {
        fuse_backward(k, *skip_layer_normalization_grad_op());
      }
      if (node(k).op == rms_normalization_grad_op()) {
        fuse_backward(k, *skip_rms_normalization_grad_op());
      }
      if (node(k).op == batch_normalization_relu_grad_op()) fuse_image_gradient(k);
    }
    for (size_t k = 0; k < count(); ++k) {
      if (node(k).op == skip_layer_normalization_op()) {
        fuse_dropout(k, *dropout_skip_layer_normalization_op());
      }
      if (node(k).op == skip_rms_normalization_op()) {
        fuse_dropout(k, *dropout_skip_rms_normalization_op());
      }
      if (node(k).op == dropout_grad_op()) fuse_dropout_gradient(k);
    }
    apply();
  }

 private:
  /// Neither side broadcasts, and both are computed: what is read from outside stays where it is.
  bool is_plain_sum(const Node& n) const {
    if (n.op != add_op()) return false;
    const TensorType& sum = tensor(n.outputs[0]).type;
    return std::ranges::all_of(
        n.inputs, [&](TensorId id) { return is_activation(id) && tensor(id).type == sum; });
  }
  /// No image, whose layout a sum follows and a normalisation of positions does not.
  bool is_sum_of_positions(const Node& n) const {
    return is_plain_sum(n) && tensor(n.outputs[0]).type.shape.rank() != 4;
  }

  void fuse_forward(size_t k, const Op& op) {
    const TensorId sum = node(k).inputs[0];
    if (!is_activation(sum)) return;
    const size_t add = producer(sum);
    if (!is_sum_of_positions(node(add)) || node(add).phase != node(k).phase) return;
    Node fused = node(k);
    fused.op = &op;
    // Parameters stand beside x: with those and the terms all is there where the sum was made.
    const bool has_mean = &op == skip_layer_normalization_op();
    fused.inputs.resize(has_mean ? 3 : 2, kNoTensor);
    for (size_t i = 1; i < fused.inputs.size(); ++i) {
      if (fused.inputs[i] != kNoTensor && tensor(fused.inputs[i]).producer != kNoNode) return;
    }
    fused.inputs[0] = node(add).inputs[0];
    fused.inputs.push_back(node(add).inputs[1]);
    fused.outputs.resize(has_mean ? 3 : 2, kNoTensor);
    fused.outputs.push_back(sum);
    absorb(k);
    replace(add, std::move(fused));
  }

  void fuse_backward(size_t k, const Op& op) {
    const TensorId dx = node(k).outputs[0];
    if (dx == kNoTensor || !is_activation(dx)) return;
    const std::optional<size_t> add = only_reader(dx);
    if (!add || node(*add).op == nullptr || !is_sum_of_positions(node(*add))) return;
    if (node(*add).phase != node(k).phase) return;
    // It runs where the sum was made: nobody may read the parameters' gradients before.
    for (size_t o = 1; o < node(k).outputs.size(); ++o) {
      const TensorId id = node(k).outputs[o];
      if (id == kNoTensor) continue;
      for (const size_t reader : readers(id)) {
        if (reader < *add) return;
      }
    }
    const std::vector<TensorId>& terms = node(*add).inputs;
    Node fused = node(k);
    fused.op = &op;
    fused.inputs.push_back(terms[0] == dx ? terms[1] : terms[0]);
    fused.outputs[0] = node(*add).outputs[0];
    absorb(k);
    replace(*add, std::move(fused));
  }

  /// The gradients of both readers of what node k normalised, added in front of it.
  void fuse_image_gradient(size_t k) {
    const TensorId dy = node(k).inputs[4];
    if (!is_activation(dy) || only_reader(dy) != k) return;
    if (node(k).outputs[0] == kNoTensor && node(k).outputs[3] == kNoTensor) return;
    const size_t add = producer(dy);
    if (!is_plain_sum(node(add)) || node(add).phase != node(k).phase) return;
    Node fused = node(k);
    fused.op = skip_batch_normalization_relu_grad_op();
    fused.inputs.resize(7, kNoTensor);
    fused.inputs[4] = node(add).inputs[0];
    fused.inputs.push_back(node(add).inputs[1]);
    absorb(add);
    replace(k, std::move(fused));
  }

  static void append_dropout(Node& fused, const Node& dropout) {
    fused.inputs.push_back(dropout.inputs[1]);
    for (const char* name : {"ratio", "seed", "stream", "rank"}) {
      const auto* value = dropout.attributes.find(name);
      if (value != nullptr) fused.attributes.set(name, *value);
    }
  }

  /// Node k, of a sum; either of the terms may be dropped.
  void fuse_dropout(size_t k, const Op& op) {
    for (const bool first : {false, true}) {
      Node fused = node(k);
      if (first) std::swap(fused.inputs.front(), fused.inputs.back());
      const TensorId kept = fused.inputs.back();
      const size_t dropout = producer(kept);
      if (node(dropout).op != dropout_op() || node(dropout).phase != fused.phase) continue;
      if (is_marked(kept) || readers(kept).size() != 1) continue;
      fused.op = &op;
      fused.inputs.back() = node(dropout).inputs[0];
      append_dropout(fused, node(dropout));
      absorb(dropout);
      replace(k, std::move(fused));
      return;
    }
  }

  /// Of the sum's gradient, made by a normalisation's. An image's would count in another order.
  void fuse_dropout_gradient(size_t k) {
    const TensorId dx = node(k).inputs[0], dz = node(k).outputs[0];
    if (!is_activation(dx) || !is_activation(dz) || tensor(dx).type.shape.rank() == 4) return;
    const size_t norm = producer(dx);
    Node fused = node(norm);
    const bool has_mean =
        fused.op == layer_normalization_grad_op() || fused.op == skip_layer_normalization_grad_op();
    const bool is_rms =
        fused.op == rms_normalization_grad_op() || fused.op == skip_rms_normalization_grad_op();
    if ((!has_mean && !is_rms) || fused.outputs[0] != dx || fused.phase != node(k).phase) return;
    fused.op = has_mean ? dropout_skip_layer_normalization_grad_op()
                        : dropout_skip_rms_normalization_grad_op();
    fused.inputs.resize(has_mean ? 6 : 5, kNoTensor);  // skip
    append_dropout(fused, node(k));
    fused.outputs.resize(has_mean ? 3 : 2, kNoTensor);
    fused.outputs.push_back(dz);
    absorb(k);
    replace(norm, std::move(fused));
  }
};

}  // namespace

void fuse_sums(Graph& graph) { Sums(graph).run(); }

}  // namespace trainyard
