#include "src/ops/global_average_pool.h"

#include "src/ops/window.h"

namespace trainyard {
namespace {

class GlobalAveragePool final : public Op {
 public:
  std::string_view type() const override { return "GlobalAveragePool"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"x"}, 1);
    check.float_type(0).rank(0, 4).not_empty(0);
    if (!check.ok()) return check.error();
    const TensorType& x = c.input(0);
    return std::vector{TensorType{{x.shape[0], x.shape[1], 1, 1}, x.dtype}};
  }

  void differentiate(GradientContext& c) const override {
    const Attributes attributes = {{"input_shape", c.graph().tensor(c.input(0)).type.shape.dims()}};
    const auto grads =
        c.add("grad", *global_average_pool_grad_op(), attributes, {c.grad_output(0)}, {true});
    c.set_grad(0, grads[0]);
  }

  Cost cost(const Graph& graph, const Node& node) const override {
    Cost cost = Op::cost(graph, node);
    cost.flops = graph.tensor(node.inputs[0]).type.shape.elements();
    return cost;
  }

  LayoutRule layout_rule() const override { return LayoutRule::kChannelsLastToo; }
};

class GlobalAveragePoolGrad final : public Op {
 public:
  std::string_view type() const override { return "GlobalAveragePoolGrad"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"dy"}, 1, {"input_shape"});
    check.float_type(0);
    check_input_shape(check, c);
    if (!check.ok()) return check.error();
    const Shape x = input_shape_of(c.attributes());
    check.shape(0, {x[0], x[1], 1, 1});
    if (!check.ok()) return check.error();
    return std::vector{TensorType{x, c.input(0).dtype}};
  }

  LayoutRule layout_rule() const override { return LayoutRule::kChannelsLastToo; }
};

}  // namespace

const Op* global_average_pool_op() {
  static const GlobalAveragePool op;
  return &op;
}
const Op* global_average_pool_grad_op() {
  static const GlobalAveragePoolGrad op;
  return &op;
}

}  // namespace trainyard
