#include "src/ops/reshape.h"

#include <algorithm>

#include "src/ops/shape_helpers.h"

namespace trainyard {
namespace {

/// Replaces the -1 in `wanted` so that the shape has `elements` elements. If that is impossible,
/// the result has another number of elements.
Shape resolve(std::vector<int64_t> wanted, int64_t elements) {
  const auto open = std::find(wanted.begin(), wanted.end(), -1);
  if (open != wanted.end()) {
    *open = 1;
    const Shape known(wanted);
    if (known.fits() && known.elements() > 0 && elements % known.elements() == 0) {
      *open = elements / known.elements();
    }
  }
  return Shape(std::move(wanted));
}

Result<std::vector<TensorType>> infer_reshape(const InferContext& c, std::string_view input) {
  OpChecks check(c, {input}, 1, {"shape"});
  check.float_type(0);
  if (!check.ok()) return check.error();
  const std::vector<int64_t> wanted = c.attributes().get_ints("shape", {});
  const Shape& x = c.input(0).shape;
  check.require(
      std::count(wanted.begin(), wanted.end(), -1) <= 1 &&
          std::all_of(wanted.begin(), wanted.end(), [](int64_t d) { return d == -1 || d >= 1; }),
      "ATTRIBUTE_OUT_OF_RANGE", "shape",
      Shape(wanted).to_string() +
          " is not possible, expected sizes of at least 1 and at most one -1");
  if (!check.ok()) return check.error();
  const Shape y = resolve(wanted, x.elements());
  check.require(y.fits() && y.elements() == x.elements(), "SHAPE_MISMATCH", "shape",
                Shape(wanted).to_string() + " does not hold the " + std::to_string(x.elements()) +
                    " elements of " + x.to_string());
  if (!check.ok()) return check.error();
  return std::vector{TensorType{y, c.input(0).dtype}};
}

class ReshapeGrad final : public Op {
 public:
  std::string_view type() const override { return "ReshapeGrad"; }
  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    return infer_reshape(c, "dy");
  }
  std::vector<std::pair<int64_t, int64_t>> may_alias(const Node&) const override {
    return {{0, 0}};
  }
  PrecisionRule precision_rule() const override { return {.moves = true}; }
};

class Reshape final : public Op {
 public:
  std::string_view type() const override { return "Reshape"; }
  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    return infer_reshape(c, "x");
  }
  void differentiate(GradientContext& c) const override {
    const auto& shape = c.graph().tensor(c.input(0)).type.shape.dims();
    c.set_grad(
        0, c.add("grad", *reshape_grad_op(), {{"shape", shape}}, {c.grad_output(0)}, {true})[0]);
  }
  std::vector<std::pair<int64_t, int64_t>> may_alias(const Node&) const override {
    return {{0, 0}};
  }
  PrecisionRule precision_rule() const override { return {.moves = true}; }
};

}  // namespace

const Op* reshape_op() {
  static const Reshape op;
  return &op;
}
const Op* reshape_grad_op() {
  static const ReshapeGrad op;
  return &op;
}

}  // namespace trainyard
