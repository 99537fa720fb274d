#include "src/ops/constant_of_shape.h"

#include "src/base/text.h"
#include "src/ops/shape_helpers.h"

namespace trainyard {
namespace {

class ConstantOfShape final : public Op {
 public:
  std::string_view type() const override { return "ConstantOfShape"; }
  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {}, 0, {"shape", "value", "dtype"});
    if (!check.ok()) return check.error();
    const Shape shape(c.attributes().get_ints("shape", {}));
    const std::string name = c.attributes().get_string("dtype", "F32");
    const auto dtype = find_dtype(name);
    check.require(dtype && is_float(*dtype), "ATTRIBUTE_OUT_OF_RANGE", "dtype",
                  quoted_value(name) + " is not possible, expected 'F32' or 'F64'");
    check.require(shape.fits(), "ATTRIBUTE_OUT_OF_RANGE", "shape",
                  shape.to_string() + " is out of range");
    if (!check.ok()) return check.error();
    return std::vector{TensorType{shape, *dtype}};
  }
  void differentiate(GradientContext&) const override {}
  LayoutRule layout_rule() const override { return LayoutRule::kFollow; }
};

}  // namespace

const Op* constant_of_shape_op() {
  static const ConstantOfShape op;
  return &op;
}

}  // namespace trainyard
