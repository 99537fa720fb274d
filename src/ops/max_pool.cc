#include "src/ops/max_pool.h"

#include "kernels/pool.h"
#include "src/ops/window.h"

namespace trainyard {
namespace {

void check_attributes(OpChecks& check, const InferContext& c) {
  check.int_in("ceil_mode", 0, 0, 1).int_in("storage_order", 0, 0, 0);
  check_window(check, c, /*kernel_required=*/true, /*pads_below_kernel=*/true);
}

Shape output_shape(const Attributes& attributes, const Shape& x) {
  return window_output(pool_window(attributes, x), x, x[1]);
}

class MaxPool final : public Op {
 public:
  std::string_view type() const override { return "MaxPool"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"x"}, 1,
                   {"kernel_shape", "strides", "pads", "dilations", "ceil_mode", "storage_order",
                    "keep_winner", "relu"});
    check.float_type(0).rank(0, 4).not_empty(0);
    check_attributes(check, c);
    check.int_in("keep_winner", 0, 0, 1).int_in("relu", 0, 0, 1);
    if (check.ok()) check_pool_fits(check, c.attributes(), c.input(0).shape);
    if (!check.ok()) return check.error();
    const bool keeps = c.attributes().get_int("keep_winner", 0) == 1;
    check.require(!keeps || has_byte_cells(c.attributes()), "ATTRIBUTE_OUT_OF_RANGE", "keep_winner",
                  "1, expected 0 for a window of more than " +
                      std::string(c.attributes().get_int("relu", 0) == 1 ? "255" : "256") +
                      " cells");
    if (!check.ok()) return check.error();
    const TensorType& x = c.input(0);
    std::vector<TensorType> outputs = {{output_shape(c.attributes(), x.shape), x.dtype}};
    if (keeps) outputs.push_back({outputs[0].shape, DType::kU8});
    return outputs;
  }

  void differentiate(GradientContext& c) const override {
    Attributes attributes = c.node().attributes;
    const bool keeps = attributes.get_int("keep_winner", 0) == 1;
    attributes.set("input_shape", c.graph().tensor(c.input(0)).type.shape.dims());
    std::vector<TensorId> inputs = {c.grad_output(0)};
    inputs.push_back(keeps ? kNoTensor : c.input(0));
    if (keeps) inputs.push_back(c.output(1));
    const auto grads =
        c.add("grad", *max_pool_grad_op(), std::move(attributes), std::move(inputs), {true});
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
    OpChecks check(c, {"dy", "x", "winner"}, 1,
                   {"kernel_shape", "strides", "pads", "dilations", "ceil_mode", "storage_order",
                    "keep_winner", "relu", "input_shape"});
    check.float_type(0).rank(0, 4).not_empty(0);
    check_attributes(check, c);
    check_input_shape(check, c);
    if (!check.ok()) return check.error();
    const Shape x = input_shape_of(c.attributes());
    check_pool_fits(check, c.attributes(), x);
    if (check.ok()) check.shape(0, output_shape(c.attributes(), x));
    check.require(c.has_input(1) != c.has_input(2), "SHAPE_MISMATCH", "winner",
                  "expected x or winner, and not both");
    check.require(c.has_input(2) || c.attributes().get_int("relu", 0) == 0, "SHAPE_MISMATCH",
                  "winner", "this input is required with relu");
    if (!check.ok()) return check.error();
    if (c.has_input(1)) check.same_dtype(1, 0).shape(1, x);
    if (c.has_input(2)) check.dtype(2, DType::kU8).same_shape(2, 0);
    if (!check.ok()) return check.error();
    return std::vector{TensorType{x, c.input(0).dtype}};
  }

  Cost cost(const Graph& graph, const Node& node) const override {
    Cost cost = Op::cost(graph, node);
    const kernels::Window w = window_of(node.attributes);
    const bool searches = node.inputs[1] != kNoTensor;
    cost.flops = graph.tensor(node.inputs[0]).type.shape.elements() * (searches ? w.R * w.S : 1);
    return cost;
  }

  LayoutRule layout_rule() const override { return LayoutRule::kChannelsLastToo; }
};

}  // namespace

bool has_byte_cells(const Attributes& pool) {
  const bool relu = pool.get_int("relu", 0) == 1;
  return kernels::PoolDims{{}, window_of(pool), /*count_include_pad=*/false, relu}.has_byte_cells();
}

const Op* max_pool_op() {
  static const MaxPool op;
  return &op;
}
const Op* max_pool_grad_op() {
  static const MaxPoolGrad op;
  return &op;
}

}  // namespace trainyard
