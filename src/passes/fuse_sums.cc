#include "src/passes/fuse_sums.h"

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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
    using enum NormalizationForm;
    for (size_t k = 0; k < count(); ++k) {
      if (node(k).op == layer_normalization_op()) fuse_forward(k, kLayer);
      if (node(k).op == rms_normalization_op()) fuse_forward(k, kRms);
      if (node(k).op == layer_normalization_grad_op()) fuse_backward(k, kLayer);
      if (node(k).op == rms_normalization_grad_op()) fuse_backward(k, kRms);
      if (node(k).op == batch_normalization_relu_grad_op()) fuse_image_gradient(k);
    }
    for (size_t k = 0; k < count(); ++k) {
      if (node(k).op == skip_normalization_op()) fuse_dropout(k);
      if (node(k).op == dropout_grad_op()) fuse_dropout_gradient(k);
    }
    apply();
  }

 private:
  /// Returns whether the node is a sum of two computed tensors of the same shape.
  bool is_plain_sum(const Node& n) const {
    if (n.op != add_op()) return false;
    const TensorType& sum = tensor(n.outputs[0]).type;
    return std::ranges::all_of(
        n.inputs, [&](TensorId id) { return is_activation(id) && tensor(id).type == sum; });
  }
  /// Excludes images: their layout can be changed for a sum, but not for a normalization of
  /// positions.
  bool is_sum_of_positions(const Node& n) const {
    return is_plain_sum(n) && tensor(n.outputs[0]).type.shape.rank() != 4;
  }

  static TensorId given(const std::vector<TensorId>& ids, size_t i) {
    return i < ids.size() ? ids[i] : kNoTensor;
  }
  static void set_form(Node& fused, NormalizationForm form) {
    fused.attributes.set("form", std::string(form == NormalizationForm::kRms ? "rms" : "layer"));
  }

  void fuse_forward(size_t k, NormalizationForm form) {
    const TensorId sum = node(k).inputs[0];
    if (!is_activation(sum)) return;
    const size_t add = producer(sum);
    if (!is_sum_of_positions(node(add)) || node(add).phase != node(k).phase) return;
    // If the other inputs are parameters, all inputs of the fused node exist at the place of the
    // sum.
    const std::vector<TensorId>&in = node(k).inputs, &out = node(k).outputs;
    for (size_t i = 1; i < in.size(); ++i) {
      if (in[i] != kNoTensor && tensor(in[i]).producer != kNoNode) return;
    }
    const bool is_rms = form == NormalizationForm::kRms;
    Node fused = node(k);
    fused.op = skip_normalization_op();
    set_form(fused, form);
    fused.inputs = {node(add).inputs[0], in[1], given(in, 2), node(add).inputs[1]};
    fused.outputs = {out[0], is_rms ? kNoTensor : given(out, 1), given(out, is_rms ? 1 : 2), sum};
    absorb(k);
    replace(add, std::move(fused));
  }

  /// Returns node k, the gradient of a normalization, as a SkipNormalizationGrad that has no skip
  /// and no dropout yet.
  Node gradient_of_sum(size_t k, NormalizationForm form) const {
    const std::vector<TensorId>&in = node(k).inputs, &out = node(k).outputs;
    Node fused = node(k);
    fused.op = skip_normalization_grad_op();
    set_form(fused, form);
    fused.inputs = {in[0], in[1], in[2], in[3], given(in, 4), kNoTensor};
    fused.outputs = {out[0], out[1], given(out, 2), kNoTensor};
    return fused;
  }

  void fuse_backward(size_t k, NormalizationForm form) {
    const TensorId dx = node(k).outputs[0];
    if (dx == kNoTensor || !is_activation(dx)) return;
    const std::optional<size_t> add = only_reader(dx);
    if (!add || node(*add).op == nullptr || !is_sum_of_positions(node(*add))) return;
    if (node(*add).phase != node(k).phase) return;
    // The fused node is at the place of the sum, so nothing may read the parameters' gradients
    // before.
    for (size_t o = 1; o < node(k).outputs.size(); ++o) {
      const TensorId id = node(k).outputs[o];
      if (id == kNoTensor) continue;
      for (const size_t reader : readers(id)) {
        if (reader < *add) return;
      }
    }
    const std::vector<TensorId>& terms = node(*add).inputs;
    Node fused = gradient_of_sum(k, form);
    fused.inputs[kGradSkip] = terms[0] == dx ? terms[1] : terms[0];
    fused.outputs[0] = node(*add).outputs[0];
    absorb(k);
    replace(*add, std::move(fused));
  }

  /// Fuses node k with the sum before it, which adds the gradients of the two readers of the
  /// normalization's output.
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

  /// Adds the attributes of the dropout, and the step as the last input.
  static void append_dropout(Node& fused, const Node& dropout) {
    fused.inputs.push_back(dropout.inputs[1]);
    for (const std::string_view name : kDropoutAttributes) {
      const auto* value = dropout.attributes.find(name);
      if (value != nullptr) fused.attributes.set(std::string(name), *value);
    }
  }

  /// Fuses SkipNormalization k with a dropout of either term of its sum.
  void fuse_dropout(size_t k) {
    for (const bool first : {false, true}) {
      Node fused = node(k);
      if (first) std::swap(fused.inputs[0], fused.inputs[kSkip]);
      const TensorId kept = fused.inputs[kSkip];
      const size_t dropout = producer(kept);
      if (node(dropout).op != dropout_op() || node(dropout).phase != fused.phase) continue;
      if (is_marked(kept) || readers(kept).size() != 1) continue;
      fused.inputs[kSkip] = node(dropout).inputs[0];
      append_dropout(fused, node(dropout));
      absorb(dropout);
      replace(k, std::move(fused));
      return;
    }
  }

  /// Returns node `norm` as a SkipNormalizationGrad, if it is the gradient of a normalization.
  std::optional<Node> as_gradient_of_sum(size_t norm) const {
    using enum NormalizationForm;
    if (node(norm).op == skip_normalization_grad_op()) return node(norm);
    if (node(norm).op == layer_normalization_grad_op()) return gradient_of_sum(norm, kLayer);
    if (node(norm).op == rms_normalization_grad_op()) return gradient_of_sum(norm, kRms);
    return std::nullopt;
  }

  /// Fuses DropoutGrad k with the normalization's gradient that computes its input. Images are
  /// excluded, because dropout counts elements in physical order.
  void fuse_dropout_gradient(size_t k) {
    const TensorId dx = node(k).inputs[0], dz = node(k).outputs[0];
    if (!is_activation(dx) || !is_activation(dz) || tensor(dx).type.shape.rank() == 4) return;
    const size_t norm = producer(dx);
    std::optional<Node> fused = as_gradient_of_sum(norm);
    if (!fused || fused->outputs[0] != dx || fused->phase != node(k).phase) return;
    if (fused->outputs[kDz] != kNoTensor) return;  // it already includes another dropout
    append_dropout(*fused, node(k));
    fused->outputs[kDz] = dz;
    absorb(k);
    replace(norm, *std::move(fused));
  }

  // Input and output indices of SkipNormalization and SkipNormalizationGrad.
  static constexpr size_t kSkip = 3, kGradSkip = 5, kDz = 3;
};

}  // namespace

void fuse_sums(Graph& graph) { Sums(graph).run(); }

}  // namespace trainyard
