#include "src/ops/cast.h"

#include "src/ops/shape_helpers.h"

namespace trainyard {
namespace {

class Cast final : public Op {
 public:
  std::string_view type() const override { return "Cast"; }
  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"x"}, 1, {"to"});
    check.float_type(0);
    const std::string to = c.attributes().get_string("to", "");
    check.require(to.empty() || to == "I32", "ATTRIBUTE_OUT_OF_RANGE", "to", to + ", expected I32");
    if (!check.ok()) return check.error();
    return std::vector{TensorType{c.input(0).shape, to.empty() ? c.input(0).dtype : DType::kI32}};
  }
  std::optional<std::vector<Spread>> spread(const std::vector<Spread>& inputs,
                                            size_t) const override {
    return inputs;  // a cast keeps the spread
  }
  // bf16 represents integers exactly only up to 256, so indices must not be rounded to it.
  PrecisionRule precision_rule() const override { return {.f32_inputs = {0}}; }
  LayoutRule layout_rule() const override { return LayoutRule::kFollow; }
};

}  // namespace

const Op* cast_op() {
  static const Cast op;
  return &op;
}

}  // namespace trainyard
