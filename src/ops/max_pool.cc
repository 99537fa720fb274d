#include "src/ops/max_pool.h"

#include "src/ops/window.h"

namespace trainyard {
namespace {

void check_max_pool(OpChecks& check, const InferContext& c) {
  check.float_type(0).rank(0, 4).not_empty(0);
  check.int_in("ceil_mode", 0, 0, 1).int_in("storage_order", 0, 0, 0);
  check_window(check, c, /*kernel_required=*/true, /*pads_below_kernel=*/true);
  if (check.ok()) check_pool_fits(check, c.attributes(), c.input(0).shape);
}

TensorType output_type(const InferContext& c) {
  const TensorType& x = c.input(0);
  return {window_output(pool_window(c.attributes(), x.shape), x.shape, x.shape[1]), x.dtype};
}

class MaxPool final : public Op {
 public:
  std::string_view type() const override { return "MaxPool"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"x"}, 1,
                   {"kernel_shape", "strides", "pads", "dilations", "ceil_mode", "storage_order"});
    check_max_pool(check, c);
    if (!check.ok()) return check.error();
    return std::vector{output_type(c)};
  }

  void differentiate(GradientContext& c) const override {
    const auto grads = c.add("grad", *max_pool_grad_op(), c.node().attributes,
                             {c.input(0), c.grad_output(0)}, {true});
    c.set_grad(0, grads[0]);
  }

  Cost cost(const Graph& graph, const Node& node) const override {
    Cost cost = Op::cost(graph, node);
    const kernels::Window w = window_of(node.attributes);
    cost.flops = graph.tensor(node.outputs[0]).type.shape.elements() * w.R * w.S;
    return cost;
  }

  LayoutRule layout_rule() const override { return LayoutRule::kChannelsLastToo; }
};

class MaxPoolGrad final : public Op {
 public:
  std::string_view type() const override { return "MaxPoolGrad"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"x", "dy"}, 2,
                   {"kernel_shape", "strides", "pads", "dilations", "ceil_mode", "storage_order"});
    check_max_pool(check, c);
    if (check.ok()) check.same_dtype(1, 0).shape(1, output_type(c).shape);
    if (!check.ok()) return check.error();
    return std::vector{c.input(0)};
  }

  Cost cost(const Graph& graph, const Node& node) const override {
    Cost cost = Op::cost(graph, node);
    const kernels::Window w = window_of(node.attributes);
    cost.flops = graph.tensor(node.inputs[1]).type.shape.elements() * w.R * w.S;
    return cost;
  }

  LayoutRule layout_rule() const override { return LayoutRule::kChannelsLastToo; }
};

}  // namespace

const Op* max_pool_op() {
  static const MaxPool op;
  return &op;
}
const Op* max_pool_grad_op() {
  static const MaxPoolGrad op;
  return &op;
}

}  // namespace trainyard
