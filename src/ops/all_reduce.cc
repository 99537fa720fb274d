#include "src/ops/all_reduce.h"

#include <limits>

#include "src/ops/shape_helpers.h"

namespace trainyard {
namespace {

Result<std::vector<TensorType>> infer_bucket(const InferContext& c, int64_t first) {
  const int64_t count = c.input_count() - first;
  std::vector<std::string_view> names(static_cast<size_t>(first), "after");
  names.resize(static_cast<size_t>(c.input_count()), "gradient");
  OpChecks check(c, std::move(names), 0, {"bucket"});
  check.require(
      count >= 1 && count <= kBucketTensorsMax, "INPUT_COUNT_INVALID", "gradient",
      std::to_string(count) + " are given, expected 1.." + std::to_string(kBucketTensorsMax));
  check.int_in("bucket", -1, 0, std::numeric_limits<int32_t>::max());
  std::vector<TensorType> types;
  for (int64_t i = first; i < c.input_count() && check.ok(); ++i) {
    check.require(c.has_input(i), "INPUT_COUNT_INVALID", "gradient", "none may be left out");
    check.float_type(i);
    if (check.ok()) types.push_back(c.input(i));
  }
  if (!check.ok()) return check.error();
  return types;
}

/// Output i may share the memory of input `first` + i.
std::vector<std::pair<int64_t, int64_t>> in_place(int64_t first) {
  std::vector<std::pair<int64_t, int64_t>> pairs;
  for (int64_t i = 0; i < kBucketTensorsMax; ++i) pairs.emplace_back(i, first + i);
  return pairs;
}

class AllReduceStart final : public Op {
 public:
  std::string_view type() const override { return "AllReduceStart"; }
  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    return infer_bucket(c, 0);
  }
  std::vector<std::pair<int64_t, int64_t>> may_alias(const Node&) const override {
    static const auto pairs = in_place(0);
    return pairs;
  }
  bool starts_other_work() const override { return true; }
};

class AllReduceDone final : public Op {
 public:
  std::string_view type() const override { return "AllReduceDone"; }
  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    return infer_bucket(c, 1);
  }
  Cost cost(const Graph&, const Node&) const override { return {}; }  // it only waits
  std::vector<std::pair<int64_t, int64_t>> may_alias(const Node&) const override {
    static const auto pairs = in_place(1);
    return pairs;
  }
};

}  // namespace

const Op* all_reduce_start_op() {
  static const AllReduceStart op;
  return &op;
}
const Op* all_reduce_done_op() {
  static const AllReduceDone op;
  return &op;
}

}  // namespace trainyard
