#include "src/ops/image_to_sequence.h"

#include "src/ops/shape_helpers.h"

namespace trainyard {
namespace {

class ImageToSequence final : public Op {
 public:
  std::string_view type() const override { return "ImageToSequence"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"x"}, 1);
    check.float_type(0).rank(0, 4).not_empty(0);
    if (!check.ok()) return check.error();
    const Shape& x = c.input(0).shape;
    return std::vector{TensorType{{x[0], x[2] * x[3], x[1]}, c.input(0).dtype}};
  }

  void differentiate(GradientContext& c) const override {
    const auto& shape = c.graph().tensor(c.input(0)).type.shape.dims();
    c.set_grad(0, c.add("grad", *image_to_sequence_grad_op(), {{"shape", shape}},
                        {c.grad_output(0)}, {true})[0]);
  }
  LayoutRule layout_rule() const override { return LayoutRule::kFollow; }
};

class ImageToSequenceGrad final : public Op {
 public:
  std::string_view type() const override { return "ImageToSequenceGrad"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"dy"}, 1, {"shape"});
    check.float_type(0).rank(0, 3);
    const Shape x(c.attributes().get_ints("shape", {}));
    check.require(x.rank() == 4 && x.fits(), "ATTRIBUTE_OUT_OF_RANGE", "shape",
                  x.to_string() + " is not an image");
    if (!check.ok()) return check.error();
    check.shape(0, {x[0], x[2] * x[3], x[1]});
    if (!check.ok()) return check.error();
    return std::vector{TensorType{x, c.input(0).dtype}};
  }
  LayoutRule layout_rule() const override { return LayoutRule::kFollow; }
};

}  // namespace

const Op* image_to_sequence_op() {
  static const ImageToSequence op;
  return &op;
}
const Op* image_to_sequence_grad_op() {
  static const ImageToSequenceGrad op;
  return &op;
}

}  // namespace trainyard
