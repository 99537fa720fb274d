#include "src/ops/loss_scale_update.h"

#include "src/ops/shape_helpers.h"

namespace trainyard {
namespace {

class LossScaleUpdate final : public Op {
 public:
  std::string_view type() const override { return "LossScaleUpdate"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"scale", "good_steps", "updates", "norm", "learning_rate"}, 5,
                   {"growth", "backoff", "interval"});
    check.float_type(0).same_dtype(3, 0).dtype(4, DType::kF32);
    for (const int64_t i : {1, 2}) check.dtype(i, DType::kI64);
    for (int64_t i = 0; i < 5; ++i) check.shape(i, {1});
    if (!check.ok()) return check.error();
    const Attributes& a = c.attributes();
    const double backoff = a.get_float("backoff", 0.5);
    check.require(a.get_float("growth", 2) >= 1, "ATTRIBUTE_OUT_OF_RANGE", "growth",
                  "expected 1 or more");
    check.require(backoff > 0 && backoff <= 1, "ATTRIBUTE_OUT_OF_RANGE", "backoff",
                  "expected more than 0 and at most 1");
    check.require(a.get_int("interval", 2000) >= 1, "ATTRIBUTE_OUT_OF_RANGE", "interval",
                  "expected 1 or more");
    if (!check.ok()) return check.error();
    return std::vector{TensorType{{1}, DType::kF32}, TensorType{{1}, DType::kI64}, c.input(0)};
  }
  std::vector<int64_t> mutated_inputs(const Node&) const override { return {0, 1, 2}; }
};

}  // namespace

const Op* loss_scale_update_op() {
  static const LossScaleUpdate op;
  return &op;
}

}  // namespace trainyard
