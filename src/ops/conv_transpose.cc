#include "src/ops/conv_transpose.h"

#include "src/ops/tf32.h"
#include "src/ops/window.h"

namespace trainyard {
namespace {

Shape output_shape(const Attributes& attributes, const Shape& x, const Shape& w) {
  const kernels::Window window = window_of(attributes, w[2], w[3]);
  const auto extra = attributes.get_ints("output_padding", {0, 0});
  return {x[0], w[1] * attributes.get_int("group", 1),
          (x[2] - 1) * window.stride_h + extra[0] + window.height() - window.pad_top -
              window.pad_bottom,
          (x[3] - 1) * window.stride_w + extra[1] + window.width() - window.pad_left -
              window.pad_right};
}

// Does the checks common to the forward and the gradient op. x is input 0, w input 1.
void check_conv_transpose(OpChecks& check, const InferContext& c) {
  check.float_type(0).rank(0, 4).not_empty(0).same_dtype(1, 0).rank(1, 4).not_empty(1);
  check.int_in("group", 1, 1, 65536);
  check_window(check, c, /*kernel_required=*/false, /*pads_below_kernel=*/false);
  if (!check.ok()) return;
  const Shape& x = c.input(0).shape;
  const Shape& w = c.input(1).shape;
  const int64_t group = c.attributes().get_int("group", 1);
  check.require(
      x[1] % group == 0, "ATTRIBUTE_OUT_OF_RANGE", "group",
      std::to_string(group) + ", expected a divisor of the channels in, " + std::to_string(x[1]));
  check.require(w[0] == x[1], "SHAPE_MISMATCH", "w",
                "shape " + w.to_string() + " takes " + std::to_string(w[0]) +
                    " channels, expected " + std::to_string(x[1]) + " as x " + x.to_string());
  const kernels::Window window = window_of(c.attributes(), w[2], w[3]);
  check.require(window.R == w[2] && window.S == w[3], "SHAPE_MISMATCH", "kernel_shape",
                Shape{window.R, window.S}.to_string() + ", expected " +
                    Shape{w[2], w[3]}.to_string() + " as w " + w.to_string());
  const auto extra = c.attributes().get_ints("output_padding", {0, 0});
  check.require(extra.size() == 2 && extra[0] >= 0 && extra[1] >= 0 && extra[0] < window.stride_h &&
                    extra[1] < window.stride_w,
                "ATTRIBUTE_OUT_OF_RANGE", "output_padding",
                Shape(extra).to_string() + ", expected two values from 0, below strides " +
                    Shape{window.stride_h, window.stride_w}.to_string());
  if (!check.ok()) return;
  const Shape y = output_shape(c.attributes(), x, w);
  check.require(y[2] >= 1 && y[3] >= 1, "SHAPE_MISMATCH", "pads",
                "leave no pixel: the output would be " + y.to_string());
  check.require(y.fits(), "SHAPE_MISMATCH", "strides",
                "make an output of " + y.to_string() + ", which is too large");
}

int64_t conv_transpose_flops(const Shape& w, const Shape& x) {
  return 2 * x.elements() * w[1] * w[2] * w[3];
}

class ConvTranspose final : public Op {
 public:
  std::string_view type() const override { return "ConvTranspose"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"x", "w", "b"}, 2,
                   {"kernel_shape", "strides", "pads", "dilations", "group", "output_padding",
                    kTf32Attribute});
    check_conv_transpose(check, c);
    if (!check.ok()) return check.error();
    const Shape y = output_shape(c.attributes(), c.input(0).shape, c.input(1).shape);
    check.same_dtype(2, 0).shape(2, {y[1]});
    if (!check.ok()) return check.error();
    return std::vector{TensorType{y, c.input(0).dtype}};
  }

  void differentiate(GradientContext& c) const override {
    const bool has_bias = c.node().inputs.size() > 2 && c.input(2) != kNoTensor;
    const std::vector<bool> wanted = {c.needs_grad(0), c.needs_grad(1),
                                      has_bias && c.needs_grad(2)};
    const auto grads = c.add("grad", *conv_transpose_grad_op(), c.node().attributes,
                             {c.input(0), c.input(1), c.grad_output(0)}, wanted);
    for (int64_t i = 0; i < 3; ++i) {
      if (wanted[static_cast<size_t>(i)]) c.set_grad(i, grads[static_cast<size_t>(i)]);
    }
  }

  Cost cost(const Graph& graph, const Node& node) const override {
    Cost cost = Op::cost(graph, node);
    cost.flops = conv_transpose_flops(graph.tensor(node.inputs[1]).type.shape,
                                      graph.tensor(node.inputs[0]).type.shape);
    if (node.inputs.size() > 2 && node.inputs[2] != kNoTensor) {
      cost.flops += graph.tensor(node.outputs[0]).type.shape.elements();
    }
    return cost;
  }

  LayoutRule layout_rule() const override { return LayoutRule::kChannelsLastToo; }
  PrecisionRule precision_rule() const override { return {.factors = {0, 1}}; }
};

class ConvTransposeGrad final : public Op {
 public:
  std::string_view type() const override { return "ConvTransposeGrad"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"x", "w", "dy"}, 3,
                   {"kernel_shape", "strides", "pads", "dilations", "group", "output_padding",
                    kTf32Attribute});
    check_conv_transpose(check, c);
    if (!check.ok()) return check.error();
    const Shape y = output_shape(c.attributes(), c.input(0).shape, c.input(1).shape);
    check.same_dtype(2, 0).shape(2, y);
    if (!check.ok()) return check.error();
    return std::vector{c.input(0), c.input(1), TensorType{{y[1]}, c.input(0).dtype}};
  }

  Cost cost(const Graph& graph, const Node& node) const override {
    Cost cost = Op::cost(graph, node);
    const int64_t one = conv_transpose_flops(graph.tensor(node.inputs[1]).type.shape,
                                             graph.tensor(node.inputs[0]).type.shape);
    if (node.outputs[0] != kNoTensor) cost.flops += one;
    if (node.outputs[1] != kNoTensor) cost.flops += one;
    if (node.outputs[2] != kNoTensor) {
      cost.flops += graph.tensor(node.inputs[2]).type.shape.elements();
    }
    return cost;
  }

  LayoutRule layout_rule() const override { return LayoutRule::kChannelsLastToo; }
  PrecisionRule precision_rule() const override { return {.factors = {0, 1}}; }
};

}  // namespace

kernels::ConvDims conv_transpose_dims(const Attributes& attributes, const Shape& x,
                                      const Shape& w) {
  return {image_dims(output_shape(attributes, x, w)), x[1], window_of(attributes, w[2], w[3]),
          attributes.get_int("group", 1)};
}

const Op* conv_transpose_op() {
  static const ConvTranspose op;
  return &op;
}
const Op* conv_transpose_grad_op() {
  static const ConvTransposeGrad op;
  return &op;
}

}  // namespace trainyard
