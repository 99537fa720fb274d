#include "src/ops/expand.h"

#include <algorithm>

#include "src/ops/axes.h"

namespace trainyard {
namespace {

Shape checked_shape(OpChecks& check, const InferContext& c) {
  const Shape shape(c.attributes().get_ints("shape", {}));
  check.require(c.attributes().find("shape") != nullptr, "ATTRIBUTE_REQUIRED", "shape",
                "this attribute is required");
  check.require(shape.rank() <= kRankMax &&
                    std::ranges::all_of(shape.dims(), [](int64_t d) { return d >= 1; }),
                "ATTRIBUTE_OUT_OF_RANGE", "shape",
                shape.to_string() + ", expected at most 8 sizes of at least 1");
  return shape;
}

class SumTo final : public Op {
 public:
  std::string_view type() const override { return "SumTo"; }
  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"dy"}, 1, {"shape"});
    check.float_type(0).not_empty(0);
    const Shape shape = checked_shape(check, c);
    if (!check.ok()) return check.error();
    check.require(broadcast_shapes(shape, c.input(0).shape) == c.input(0).shape, "SHAPE_MISMATCH",
                  "shape",
                  shape.to_string() + " does not broadcast to dy " + c.input(0).shape.to_string());
    if (!check.ok()) return check.error();
    return std::vector{TensorType{shape, c.input(0).dtype}};
  }
  Cost cost(const Graph& graph, const Node& node) const override {
    Cost cost = Op::cost(graph, node);
    cost.flops = graph.tensor(node.inputs[0]).type.shape.elements();
    return cost;
  }
  LayoutRule layout_rule() const override { return LayoutRule::kFollow; }
};

class Expand final : public Op {
 public:
  std::string_view type() const override { return "Expand"; }
  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"x"}, 1, {"shape"});
    check.float_type(0).not_empty(0);
    const Shape shape = checked_shape(check, c);
    if (!check.ok()) return check.error();
    const auto y = broadcast_shapes(c.input(0).shape, shape);
    check.require(y.has_value() && y->fits() && y->rank() <= kRankMax, "SHAPE_MISMATCH", "shape",
                  shape.to_string() + " does not broadcast with x " + c.input(0).shape.to_string() +
                      ", expected sizes that are equal or 1");
    if (!check.ok()) return check.error();
    return std::vector{TensorType{*y, c.input(0).dtype}};
  }
  void differentiate(GradientContext& c) const override {
    c.set_grad(0, sum_to(c, "grad", c.grad_output(0), c.graph().tensor(c.input(0)).type.shape));
  }
  LayoutRule layout_rule() const override { return LayoutRule::kFollow; }
};

}  // namespace

const Op* expand_op() {
  static const Expand op;
  return &op;
}
const Op* sum_to_op() {
  static const SumTo op;
  return &op;
}

}  // namespace trainyard
