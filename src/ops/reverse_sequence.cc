#include "src/ops/reverse_sequence.h"

#include "src/ops/shape_helpers.h"

namespace trainyard {
namespace {

class ReverseSequence final : public Op {
 public:
  std::string_view type() const override { return "ReverseSequence"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"x", "lengths"}, 2);
    check.float_type(0).rank(0, 3).not_empty(0).dtype(1, DType::kI32);
    if (!check.ok()) return check.error();
    check.shape(1, {c.input(0).shape[0]});
    if (!check.ok()) return check.error();
    return std::vector{c.input(0)};
  }

  void differentiate(GradientContext& c) const override {
    c.set_grad(
        0, c.add("grad", *reverse_sequence_op(), {}, {c.grad_output(0), c.input(1)}, {true})[0]);
  }
  PrecisionRule precision_rule() const override { return {.moves = true}; }
};

}  // namespace

const Op* reverse_sequence_op() {
  static const ReverseSequence op;
  return &op;
}

}  // namespace trainyard
