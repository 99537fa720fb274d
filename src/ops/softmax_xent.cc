#include "src/ops/softmax_xent.h"

#include "src/ops/shape_helpers.h"

namespace trainyard {
namespace {

// What forward and gradient refuse alike; `scores` names input 0, labels are input 1.
void check_scores(OpChecks& check, const InferContext& c, std::string_view scores) {
  check.float_type(0).rank(0, 2).not_empty(0).dtype(1, DType::kI32);
  if (!check.ok()) return;
  const Shape& z = c.input(0).shape;
  check.require(z[1] >= 2, "SHAPE_MISMATCH", scores,
                "shape " + z.to_string() + " has one class, expected at least 2");
  check.shape(1, {z[0]});
}

class SoftmaxXentGrad final : public Op {
 public:
  std::string_view type() const override { return "SoftmaxCrossEntropyLossGrad"; }
  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"prob", "labels", "dloss"}, 3);
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
  std::vector<std::pair<int64_t, int64_t>> may_alias() const override { return {{0, 0}}; }
  PrecisionRule precision_rule() const override { return {.f32_outputs = {0}, .f32_inputs = {2}}; }
};

class SoftmaxXent final : public Op {
 public:
  std::string_view type() const override { return "SoftmaxCrossEntropyLoss"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"logits", "labels"}, 2);
    check_scores(check, c, "logits");
    if (!check.ok()) return check.error();
    return std::vector{TensorType{{1}, c.input(0).dtype}, c.input(0)};
  }

  void differentiate(GradientContext& c) const override {
    TRAINYARD_CHECK(c.grad_output(1) == kNoTensor,
                    c.node().name + ": prob is for reading, it has no gradient");
    c.set_grad(0, c.add("grad", *softmax_xent_grad_op(), {},
                        {c.output(1), c.input(1), c.grad_output(0)}, {true})[0]);
  }

  Cost cost(const Graph& graph, const Node& node) const override {
    Cost cost = Op::cost(graph, node);
    cost.flops = 15 * graph.tensor(node.inputs[0]).type.shape.elements();
    return cost;
  }
  std::vector<std::pair<int64_t, int64_t>> may_alias() const override { return {{1, 0}}; }
  PrecisionRule precision_rule() const override {
    return {.f32_outputs = {0, 1}, .f32_inputs = {0}};
  }
};

}  // namespace

const Op* softmax_xent_op() {
  static const SoftmaxXent op;
  return &op;
}
const Op* softmax_xent_grad_op() {
  static const SoftmaxXentGrad op;
  return &op;
}

}  // namespace trainyard
