#include "src/ops/softmax_xent.h"

#include <algorithm>
#include <cmath>

#include "src/ops/shape_helpers.h"

namespace trainyard {
namespace {

// Returns whether input 1 has the share of each class in each row, instead of one label per row.
bool has_shares(const InferContext& c) {
  return c.has_input(0) && c.has_input(1) && c.input(1).dtype == c.input(0).dtype;
}

// Does the checks common to the forward and the gradient op. `scores` is the name of input 0 in
// messages; labels are input 1.
void check_scores(OpChecks& check, const InferContext& c, std::string_view scores) {
  check.float_type(0).rank(0, 2).not_empty(0);
  const bool shares = has_shares(c);
  if (!shares) check.dtype(1, DType::kI32);
  if (!check.ok()) return;
  const Shape& z = c.input(0).shape;
  check.require(z[1] >= 2, "SHAPE_MISMATCH", scores,
                "shape " + z.to_string() + " has one class, expected at least 2");
  check.shape(1, shares ? z : Shape{z[0]});
  if (c.attributes().find("ignore_index") != nullptr) {
    check.require(!shares, "ATTRIBUTE_UNKNOWN", "ignore_index", "is only supported for labels");
  }
  check_class_attributes(check, c.attributes(), z[1]);
}

class SoftmaxXentGrad final : public Op {
 public:
  std::string_view type() const override { return "SoftmaxCrossEntropyLossGrad"; }
  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"prob", "labels", "dloss"}, 3,
                   {"label_smoothing", "ignore_index", "class_weights"});
    check_scores(check, c, "prob");
    check.same_dtype(2, 0).shape(2, {1});
    if (!check.ok()) return check.error();
    return std::vector{c.input(0)};
  }
  Cost cost(const Graph& graph, const Node& node) const override {
    Cost cost = Op::cost(graph, node);
    cost.flops = 2 * graph.tensor(node.inputs[0]).type.shape.elements();
    return cost;
  }
  std::vector<std::pair<int64_t, int64_t>> may_alias(const Node&) const override {
    return {{0, 0}};
  }
  PrecisionRule precision_rule() const override {
    return {.f32_outputs = {0}, .f32_inputs = {1, 2}};
  }
};

class SoftmaxXent final : public Op {
 public:
  explicit SoftmaxXent(bool divergence) : divergence_(divergence) {}
  std::string_view type() const override {
    return divergence_ ? "KullbackLeiblerDivergence" : "SoftmaxCrossEntropyLoss";
  }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    std::vector<std::string_view> attributes = {"label_smoothing", "ignore_index"};
    if (!divergence_) attributes.emplace_back("class_weights");
    OpChecks check(c, {"logits", "labels"}, 2, attributes);
    check_scores(check, c, "logits");
    // Refuses one-hot labels without smoothing, for which the divergence is the same as the
    // cross-entropy.
    check.require(
        !divergence_ || has_shares(c) || c.attributes().get_float("label_smoothing", 0) > 0,
        "ATTRIBUTE_OUT_OF_RANGE", "label_smoothing", "is out of range, expected (0, 1)");
    if (!check.ok()) return check.error();
    return std::vector{TensorType{{1}, c.input(0).dtype}, c.input(0)};
  }

  void differentiate(GradientContext& c) const override {
    TRAINYARD_CHECK(c.grad_output(1) == kNoTensor,
                    c.node().name + ": prob is for reading, it has no gradient");
    c.set_grad(0, c.add("grad", *softmax_xent_grad_op(), c.node().attributes,
                        {c.output(1), c.input(1), c.grad_output(0)}, {true})[0]);
  }

  Cost cost(const Graph& graph, const Node& node) const override {
    Cost cost = Op::cost(graph, node);
    cost.flops = 15 * graph.tensor(node.inputs[0]).type.shape.elements();
    return cost;
  }
  std::vector<std::pair<int64_t, int64_t>> may_alias(const Node&) const override {
    return {{1, 0}};
  }
  PrecisionRule precision_rule() const override {
    return {.f32_outputs = {0, 1}, .f32_inputs = {0, 1}};
  }

 private:
  bool divergence_;
};

}  // namespace

void check_class_attributes(OpChecks& check, const Attributes& attributes, int64_t classes) {
  const double smoothing = attributes.get_float("label_smoothing", 0);
  check.require(smoothing >= 0 && smoothing < 1, "ATTRIBUTE_OUT_OF_RANGE", "label_smoothing",
                "is out of range, expected [0, 1)");
  if (attributes.find("ignore_index") != nullptr) {
    check.int_in("ignore_index", 0, 0, classes - 1);
  }
  const std::vector<double> weights = attributes.get_floats("class_weights", {});
  const bool good =
      std::ranges::all_of(weights, [](double w) { return w >= 0 && std::isfinite(w); });
  const bool any = weights.empty() || std::ranges::any_of(weights, [](double w) { return w > 0; });
  check.require(good && any, "ATTRIBUTE_OUT_OF_RANGE", "class_weights",
                "expected numbers of 0 or more, not all 0");
  check.require(weights.empty() || std::ssize(weights) == classes, "ATTRIBUTE_OUT_OF_RANGE",
                "class_weights",
                "has " + std::to_string(weights.size()) + " entries, expected " +
                    std::to_string(classes) + ", one per class");
}

const Op* softmax_xent_op() {
  static const SoftmaxXent op(/*divergence=*/false);
  return &op;
}
const Op* kl_divergence_op() {
  static const SoftmaxXent op(/*divergence=*/true);
  return &op;
}
const Op* softmax_xent_grad_op() {
  static const SoftmaxXentGrad op;
  return &op;
}

}  // namespace trainyard
