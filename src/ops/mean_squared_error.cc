#include "src/ops/mean_squared_error.h"

#include "src/ops/shape_helpers.h"

namespace trainyard {
namespace {

class MeanSquaredErrorGrad final : public Op {
 public:
  std::string_view type() const override { return "MeanSquaredErrorGrad"; }
  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"prediction", "target", "dloss"}, 3);
    check.float_type(0).not_empty(0).same_dtype(1, 0).same_shape(1, 0);
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

class MeanSquaredError final : public Op {
 public:
  std::string_view type() const override { return "MeanSquaredError"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"prediction", "target"}, 2);
    check.float_type(0).not_empty(0).same_dtype(1, 0).same_shape(1, 0);
    if (!check.ok()) return check.error();
    return std::vector{TensorType{{1}, c.input(0).dtype}};
  }

  void differentiate(GradientContext& c) const override {
    TRAINYARD_CHECK(!c.needs_grad(1), c.node().name + ": the target has no gradient");
    c.set_grad(0, c.add("grad", *mean_squared_error_grad_op(), {},
                        {c.input(0), c.input(1), c.grad_output(0)}, {true})[0]);
  }

  Cost cost(const Graph& graph, const Node& node) const override {
    Cost cost = Op::cost(graph, node);
    cost.flops = 3 * graph.tensor(node.inputs[0]).type.shape.elements();
    return cost;
  }
  PrecisionRule precision_rule() const override {
    return {.f32_outputs = {0}, .f32_inputs = {0, 1}};
  }
};

}  // namespace

const Op* mean_squared_error_op() {
  static const MeanSquaredError op;
  return &op;
}
const Op* mean_squared_error_grad_op() {
  static const MeanSquaredErrorGrad op;
  return &op;
}

}  // namespace trainyard
