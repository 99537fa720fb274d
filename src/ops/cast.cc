#include "src/ops/cast.h"

#include "src/ops/shape_helpers.h"

namespace trainyard {
namespace {

class Cast final : public Op {
 public:
  std::string_view type() const override { return "Cast"; }
  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"x"}, 1);
    check.float_type(0);
    if (!check.ok()) return check.error();
    return std::vector{c.input(0)};
  }
  LayoutRule layout_rule() const override { return LayoutRule::kFollow; }
};

}  // namespace

const Op* cast_op() {
  static const Cast op;
  return &op;
}

}  // namespace trainyard
