#include "src/ops/conv.h"

#include "src/ops/tf32.h"
#include "src/ops/window.h"

namespace trainyard {
namespace {

// Does the checks common to the forward and the gradient op. x is input 0, w input 1.
void check_conv(OpChecks& check, const InferContext& c) {
  check.float_type(0).rank(0, 4).not_empty(0).same_dtype(1, 0).rank(1, 4).not_empty(1);
  check.int_in("group", 1, 1, 65536);
  check_window(check, c, /*kernel_required=*/false, /*pads_below_kernel=*/false);
  if (!check.ok()) return;
  const Shape& x = c.input(0).shape;
  const Shape& w = c.input(1).shape;
  const int64_t group = c.attributes().get_int("group", 1);
  check.require(x[1] % group == 0 && w[0] % group == 0, "ATTRIBUTE_OUT_OF_RANGE", "group",
                std::to_string(group) + ", expected a divisor of the channels in, " +
                    std::to_string(x[1]) + ", and out, " + std::to_string(w[0]));
  check.require(w[1] * group == x[1], "SHAPE_MISMATCH", "w",
                "shape " + w.to_string() + " takes " + std::to_string(w[1] * group) +
                    " channels, expected " + std::to_string(x[1]) + " as x " + x.to_string());
  const kernels::Window window = window_of(c.attributes(), w[2], w[3]);
  check.require(window.R == w[2] && window.S == w[3], "SHAPE_MISMATCH", "kernel_shape",
                Shape{window.R, window.S}.to_string() + ", expected " +
                    Shape{w[2], w[3]}.to_string() + " as w " + w.to_string());
  check_window_fits(check, window, x);
}

Shape output_shape(const InferContext& c) {
  const Shape& w = c.input(1).shape;
  return window_output(window_of(c.attributes(), w[2], w[3]), c.input(0).shape, w[0]);
}

// Returns the FLOPs of one convolution with an output of shape `y`.
int64_t conv_flops(const Shape& w, const Shape& y) { return 2 * y.elements() * w[1] * w[2] * w[3]; }

class Conv : public Op {
 public:
  std::string_view type() const override { return "Conv"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"x", "w", "b"}, 2,
                   {"kernel_shape", "strides", "pads", "dilations", "group", kTf32Attribute});
    check_conv(check, c);
    if (check.ok()) check.same_dtype(2, 0).shape(2, {c.input(1).shape[0]});
    if (!check.ok()) return check.error();
    return std::vector{TensorType{output_shape(c), c.input(0).dtype}};
  }

  void differentiate(GradientContext& c) const override {
    const bool has_bias = c.node().inputs.size() > 2 && c.input(2) != kNoTensor;
    const std::vector<bool> wanted = {c.needs_grad(0), c.needs_grad(1),
                                      has_bias && c.needs_grad(2)};
    const auto grads = c.add("grad", *conv_grad_op(), c.node().attributes,
                             {c.input(0), c.input(1), c.grad_output(0)}, wanted);
    for (int64_t i = 0; i < 3; ++i) {
      if (wanted[static_cast<size_t>(i)]) c.set_grad(i, grads[static_cast<size_t>(i)]);
    }
  }

  Cost cost(const Graph& graph, const Node& node) const override {
    Cost cost = Op::cost(graph, node);
    const Shape& y = graph.tensor(node.outputs[0]).type.shape;
    cost.flops = conv_flops(graph.tensor(node.inputs[1]).type.shape, y);
    if (node.inputs.size() > 2 && node.inputs[2] != kNoTensor) cost.flops += y.elements();
    return cost;
  }

  LayoutRule layout_rule() const override { return LayoutRule::kChannelsLastToo; }
  PrecisionRule precision_rule() const override { return {.factors = {0, 1}}; }
};

class ConvGrad : public Op {
 public:
  std::string_view type() const override { return "ConvGrad"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"x", "w", "dy"}, 3,
                   {"kernel_shape", "strides", "pads", "dilations", "group", kTf32Attribute});
    return infer_gradients(check, c);
  }
  static Result<std::vector<TensorType>> infer_gradients(OpChecks& check, const InferContext& c) {
    check_conv(check, c);
    if (check.ok()) check.same_dtype(2, 0).shape(2, output_shape(c));
    if (!check.ok()) return check.error();
    return std::vector{c.input(0), c.input(1), TensorType{{c.input(1).shape[0]}, c.input(0).dtype}};
  }

  Cost cost(const Graph& graph, const Node& node) const override {
    Cost cost = Op::cost(graph, node);
    const Shape& dy = graph.tensor(node.inputs[2]).type.shape;
    const int64_t one = conv_flops(graph.tensor(node.inputs[1]).type.shape, dy);
    if (node.outputs[0] != kNoTensor) cost.flops += one;
    if (node.outputs[1] != kNoTensor) cost.flops += one;
    if (node.outputs[2] != kNoTensor) cost.flops += dy.elements();
    return cost;
  }

  LayoutRule layout_rule() const override { return LayoutRule::kChannelsLastToo; }
  PrecisionRule precision_rule() const override { return {.factors = {0, 1}}; }
};

class ConvRelu final : public Conv {
 public:
  std::string_view type() const override { return "ConvRelu"; }
  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    ASSIGN_OR_RETURN(std::vector<TensorType> types, Conv::infer(c));
    OpChecks check(c, {"x", "w", "b"}, 3,
                   {"kernel_shape", "strides", "pads", "dilations", "group", kTf32Attribute});
    if (!check.ok()) return check.error();
    return types;
  }
  Cost cost(const Graph& graph, const Node& node) const override {
    Cost cost = Conv::cost(graph, node);
    cost.flops += graph.tensor(node.outputs[0]).type.shape.elements();
    return cost;
  }
};

class ReluConvGrad final : public ConvGrad {
 public:
  std::string_view type() const override { return "ReluConvGrad"; }
  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"x", "w", "dy", "y"}, 4,
                   {"kernel_shape", "strides", "pads", "dilations", "group", kTf32Attribute});
    ASSIGN_OR_RETURN(std::vector<TensorType> types, infer_gradients(check, c));
    check.same_dtype(3, 2).same_shape(3, 2);
    if (!check.ok()) return check.error();
    types.push_back(c.input(2));
    return types;
  }
  Cost cost(const Graph& graph, const Node& node) const override {
    Cost cost = ConvGrad::cost(graph, node);
    cost.flops += graph.tensor(node.inputs[2]).type.shape.elements();
    return cost;
  }
  /// dpre is complete before dx is written, so dx may overwrite y or dy.
  std::vector<std::pair<int64_t, int64_t>> may_alias(const Node&) const override {
    return {{0, 3}, {0, 2}, {3, 2}, {3, 3}};
  }
};

}  // namespace

const Op* conv_op() {
  static const Conv op;
  return &op;
}
const Op* conv_grad_op() {
  static const ConvGrad op;
  return &op;
}
const Op* conv_relu_op() {
  static const ConvRelu op;
  return &op;
}
const Op* relu_conv_grad_op() {
  static const ReluConvGrad op;
  return &op;
}

}  // namespace trainyard
