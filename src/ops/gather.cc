#include "src/ops/gather.h"

#include "src/ops/shape_helpers.h"

namespace trainyard {
namespace {

Shape gathered_shape(const Shape& table, const Shape& indices) {
  std::vector<int64_t> dims = indices.dims();
  dims.insert(dims.end(), table.dims().begin() + 1, table.dims().end());
  return Shape(std::move(dims));
}

class Gather final : public Op {
 public:
  std::string_view type() const override { return "Gather"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"table", "indices"}, 2, {"axis"});
    check.float_type(0).rank_at_least(0, 2).not_empty(0);
    check.dtype(1, DType::kI32).rank_at_least(1, 1).not_empty(1).int_in("axis", 0, 0, 0);
    if (!check.ok()) return check.error();
    return std::vector{
        TensorType{gathered_shape(c.input(0).shape, c.input(1).shape), c.input(0).dtype}};
  }

  void differentiate(GradientContext& c) const override {
    const auto& shape = c.graph().tensor(c.input(0)).type.shape.dims();
    c.set_grad(0, c.add("grad", *gather_grad_op(), {{"shape", shape}},
                        {c.input(1), c.grad_output(0)}, {true})[0]);
  }

  Cost cost(const Graph& graph, const Node& node) const override {  // not all of the table
    return {0, 2 * graph.tensor(node.outputs[0]).type.bytes() +
                   graph.tensor(node.inputs[1]).type.bytes()};
  }
  // Rows that were taken of a table are read as the table is.
  PrecisionRule precision_rule() const override { return {.f32_inputs = {0}}; }
};

class GatherGrad final : public Op {
 public:
  std::string_view type() const override { return "GatherGrad"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"indices", "dy"}, 2, {"shape"});
    check.dtype(0, DType::kI32).rank_at_least(0, 1).not_empty(0).float_type(1);
    const Shape table(c.attributes().get_ints("shape", {}));
    check.require(table.fits() && table.rank() >= 2, "ATTRIBUTE_OUT_OF_RANGE", "shape",
                  table.to_string() + " is not a table");
    if (!check.ok()) return check.error();
    check.shape(1, gathered_shape(table, c.input(0).shape));
    if (!check.ok()) return check.error();
    return std::vector{TensorType{table, c.input(1).dtype}};
  }

  Cost cost(const Graph& graph, const Node& node) const override {
    Cost cost = Op::cost(graph, node);
    cost.flops = graph.tensor(node.inputs[1]).type.shape.elements();
    return cost;
  }
};

}  // namespace

const Op* gather_op() {
  static const Gather op;
  return &op;
}
const Op* gather_grad_op() {
  static const GatherGrad op;
  return &op;
}

}  // namespace trainyard
