#include "src/ops/flatten.h"

#include "src/ops/shape_helpers.h"

namespace trainyard {
namespace {

class FlattenGrad final : public Op {
 public:
  std::string_view type() const override { return "FlattenGrad"; }
  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"dy"}, 1, {"shape"});
    check.float_type(0).rank(0, 2);
    const Shape shape(c.attributes().get_ints("shape", {}));
    check.require(shape.fits() && shape.elements() == c.input(0).shape.elements(), "SHAPE_MISMATCH",
                  "shape", "does not hold the elements of dy");
    if (!check.ok()) return check.error();
    return std::vector{TensorType{shape, c.input(0).dtype}};
  }
  std::vector<std::pair<int64_t, int64_t>> may_alias(const Node&) const override {
    return {{0, 0}};
  }
  LayoutRule layout_rule() const override { return LayoutRule::kFollow; }
  PrecisionRule precision_rule() const override { return {.moves = true}; }
};

class Flatten final : public Op {
 public:
  std::string_view type() const override { return "Flatten"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"x"}, 1, {"axis"});
    check.float_type(0);
    if (check.ok()) check.int_in("axis", 1, -c.input(0).shape.rank(), c.input(0).shape.rank());
    if (!check.ok()) return check.error();
    const Shape& x = c.input(0).shape;
    int64_t axis = c.attributes().get_int("axis", 1);
    if (axis < 0) axis += x.rank();
    int64_t rows = 1;
    int64_t columns = 1;
    for (int64_t i = 0; i < x.rank(); ++i) (i < axis ? rows : columns) *= x[i];
    return std::vector{TensorType{{rows, columns}, c.input(0).dtype}};
  }

  void differentiate(GradientContext& c) const override {
    const auto& shape = c.graph().tensor(c.input(0)).type.shape.dims();
    c.set_grad(
        0, c.add("grad", *flatten_grad_op(), {{"shape", shape}}, {c.grad_output(0)}, {true})[0]);
  }

  std::vector<std::pair<int64_t, int64_t>> may_alias(const Node&) const override {
    return {{0, 0}};
  }
  LayoutRule layout_rule() const override { return LayoutRule::kFollow; }
  PrecisionRule precision_rule() const override { return {.moves = true}; }
};

}  // namespace

const Op* flatten_op() {
  static const Flatten op;
  return &op;
}
const Op* flatten_grad_op() {
  static const FlattenGrad op;
  return &op;
}

}  // namespace trainyard
