#include "src/ops/average_pool.h"

#include "src/ops/window.h"

namespace trainyard {
namespace {

void check_attributes(OpChecks& check, const InferContext& c) {
  check.int_in("ceil_mode", 0, 0, 1).int_in("count_include_pad", 0, 0, 1);
  // If padding counts, PyTorch and versions of ONNX disagree on the divisor of a window that
  // ceil_mode adds.
  const Attributes& a = c.attributes();
  check.require(a.get_int("ceil_mode", 0) == 0 || a.get_int("count_include_pad", 0) == 0,
                "UNSUPPORTED", "ceil_mode",
                "is not supported together with count_include_pad, expected one of them");
  check_window(check, c, /*kernel_required=*/true, /*pads_below_kernel=*/true);
}

class AveragePool final : public Op {
 public:
  std::string_view type() const override { return "AveragePool"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(
        c, {"x"}, 1,
        {"kernel_shape", "strides", "pads", "count_include_pad", "dilations", "ceil_mode"});
    check.float_type(0).rank(0, 4).not_empty(0);
    check_attributes(check, c);
    if (check.ok()) check_pool_fits(check, c.attributes(), c.input(0).shape);
    if (!check.ok()) return check.error();
    const TensorType& x = c.input(0);
    return std::vector{TensorType{
        window_output(pool_window(c.attributes(), x.shape), x.shape, x.shape[1]), x.dtype}};
  }

  void differentiate(GradientContext& c) const override {
    Attributes attributes = c.node().attributes;
    attributes.set("input_shape", c.graph().tensor(c.input(0)).type.shape.dims());
    const auto grads =
        c.add("grad", *average_pool_grad_op(), std::move(attributes), {c.grad_output(0)}, {true});
    c.set_grad(0, grads[0]);
  }

  Cost cost(const Graph& graph, const Node& node) const override {
    Cost cost = Op::cost(graph, node);
    const kernels::Window w = window_of(node.attributes);
    cost.flops = graph.tensor(node.outputs[0]).type.shape.elements() * (w.R * w.S + 1);
    return cost;
  }

  LayoutRule layout_rule() const override { return LayoutRule::kChannelsLastToo; }
};

class AveragePoolGrad final : public Op {
 public:
  std::string_view type() const override { return "AveragePoolGrad"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"dy"}, 1,
                   {"kernel_shape", "strides", "pads", "count_include_pad", "dilations",
                    "ceil_mode", "input_shape"});
    check.float_type(0).rank(0, 4).not_empty(0);
    check_attributes(check, c);
    check_input_shape(check, c);
    if (!check.ok()) return check.error();
    const Shape x = input_shape_of(c.attributes());
    check_pool_fits(check, c.attributes(), x);
    if (check.ok()) check.shape(0, window_output(pool_window(c.attributes(), x), x, x[1]));
    if (!check.ok()) return check.error();
    return std::vector{TensorType{x, c.input(0).dtype}};
  }

  Cost cost(const Graph& graph, const Node& node) const override {
    Cost cost = Op::cost(graph, node);
    const kernels::Window w = window_of(node.attributes);
    cost.flops = graph.tensor(node.inputs[0]).type.shape.elements() * (w.R * w.S + 1);
    return cost;
  }

  LayoutRule layout_rule() const override { return LayoutRule::kChannelsLastToo; }
};

}  // namespace

const Op* average_pool_op() {
  static const AveragePool op;
  return &op;
}
const Op* average_pool_grad_op() {
  static const AveragePoolGrad op;
  return &op;
}

}  // namespace trainyard
