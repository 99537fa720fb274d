#include "src/ops/distinct_rows.h"

#include <algorithm>
#include <limits>
#include <string>

#include "src/ops/shape_helpers.h"

namespace trainyard {
namespace {

constexpr int64_t kIndexMax = std::numeric_limits<int32_t>::max();
constexpr int64_t kCounted = 1, kKept = 2, kMicroStep = 3;

class DistinctRows final : public Op {
 public:
  std::string_view type() const override { return "DistinctRows"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"indices", "counted", "kept", "micro_step"}, 1, {"table", "micro_batches"});
    check.dtype(0, DType::kI32).rank_at_least(0, 1).not_empty(0);
    check.dtype(kCounted, DType::kI32).rank_at_least(kCounted, 1).not_empty(kCounted);
    check.dtype(kKept, DType::kI32).dtype(kMicroStep, DType::kI64).shape(kMicroStep, {1});
    check.int_in("table", 0, 1, kIndexMax).int_in("micro_batches", 1, 1, kIndexMax);
    if (!check.ok()) return check.error();
    const int64_t own = c.input(0).shape.elements();
    const int64_t counted = c.has_input(kCounted) ? c.input(kCounted).shape.elements() : own;
    const int64_t micro_batches = c.attributes().get_int("micro_batches", 1);
    check.require(counted >= own && counted <= kIndexMax / micro_batches / 2, "SHAPE_MISMATCH",
                  "counted",
                  std::to_string(counted) + " indices, expected " + std::to_string(own) +
                      " or more, and fewer than 2^30 in a step");
    check.require(
        c.has_input(kKept) == c.has_input(kMicroStep) && (micro_batches == 1 || c.has_input(kKept)),
        "INPUT_COUNT_INVALID", "kept",
        "and micro_step must be given together, and if micro_batches is above 1");
    const Shape rows{
        distinct_rows_size(c.attributes().get_int("table", 1), counted, micro_batches)};
    check.shape(kKept, rows);
    if (!check.ok()) return check.error();
    return std::vector{TensorType{rows, DType::kI32}, c.input(0)};
  }
  // The indices in `counted` are the same on all ranks; each rank finds the positions of its own
  // indices.
  std::optional<std::vector<Spread>> spread(const std::vector<Spread>& inputs,
                                            size_t outputs) const override {
    for (size_t i = 0; i < inputs.size(); ++i) {
      const bool is_counted = i == kCounted && inputs[i] == Spread::kGathered;
      if (inputs[i] != Spread::kOwn && !is_counted) return std::nullopt;
    }
    return std::vector<Spread>(outputs, Spread::kOwn);
  }
  std::vector<int64_t> mutated_inputs(const Node& node) const override {
    if (std::ssize(node.inputs) <= kKept || node.inputs[kKept] == kNoTensor) return {};
    return {kKept};
  }
};

}  // namespace

int64_t distinct_rows_size(int64_t table, int64_t counted, int64_t micro_batches) {
  return std::min(table, counted * micro_batches);
}

const Op* distinct_rows_op() {
  static const DistinctRows op;
  return &op;
}

}  // namespace trainyard
