#include "src/ops/sequence_lengths.h"

#include <limits>

#include "src/ops/shape_helpers.h"

namespace trainyard {
namespace {

class SequenceLengths final : public Op {
 public:
  std::string_view type() const override { return "SequenceLengths"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"tokens"}, 1, {"padding_id"});
    check.dtype(0, DType::kI32).rank(0, 2).not_empty(0);
    check.int_in("padding_id", 0, 0, std::numeric_limits<int32_t>::max());
    if (!check.ok()) return check.error();
    return std::vector{TensorType{{c.input(0).shape[0]}, DType::kI32}};
  }

  void differentiate(GradientContext&) const override {}  // tokens have no gradient
};

}  // namespace

const Op* sequence_lengths_op() {
  static const SequenceLengths op;
  return &op;
}

}  // namespace trainyard
