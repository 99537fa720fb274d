#include "src/ops/reorder.h"

#include "src/ops/shape_helpers.h"

namespace trainyard {
namespace {

class Reorder final : public Op {
 public:
  std::string_view type() const override { return "Reorder"; }
  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"x"}, 1);
    check.float_type(0).rank(0, 4);
    if (!check.ok()) return check.error();
    return std::vector{c.input(0)};
  }
};

}  // namespace

const Op* reorder_op() {
  static const Reorder op;
  return &op;
}

}  // namespace trainyard
