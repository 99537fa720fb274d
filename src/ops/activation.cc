#include "src/ops/activation.h"

#include <algorithm>

#include "src/ops/shape_helpers.h"

namespace trainyard {

std::optional<std::vector<Spread>> spread_elementwise(const std::vector<Spread>& inputs,
                                                      size_t outputs) {
  const Spread spread = inputs.front();
  const bool fits = spread == Spread::kOwn || spread == Spread::kUnits;
  if (!fits || std::ranges::any_of(inputs, [&](Spread p) { return p != spread; })) {
    return std::nullopt;
  }
  return std::vector(outputs, spread);
}

Result<std::vector<TensorType>> ActivationOp::infer(const InferContext& c) const {
  OpChecks check(c, {"x"}, 1);
  check.float_type(0);
  if (!check.ok()) return check.error();
  return std::vector{c.input(0)};
}

Cost ActivationOp::cost(const Graph& graph, const Node& node) const {
  return cost_per_element(*this, graph, node, flops_per_element());
}

Result<std::vector<TensorType>> ActivationGradOp::infer(const InferContext& c) const {
  OpChecks check(c, {saved_name_, "dy"}, 2);
  check.float_type(0).same_dtype(1, 0).same_shape(1, 0);
  if (!check.ok()) return check.error();
  return std::vector{c.input(1)};
}

Cost ActivationGradOp::cost(const Graph& graph, const Node& node) const {
  return cost_per_element(*this, graph, node, flops_per_element());
}

void differentiate_activation(GradientContext& c, const Op& grad_op, TensorId saved) {
  const auto outputs =
      c.add("grad", grad_op, c.node().attributes, {saved, c.grad_output(0)}, {true});
  c.set_grad(0, outputs[0]);
}

}  // namespace trainyard
