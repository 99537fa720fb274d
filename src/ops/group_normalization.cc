#include "src/ops/group_normalization.h"

#include "src/ops/shape_helpers.h"

namespace trainyard {
namespace {

/// GroupNormalization, which has `num_groups` groups, or InstanceNormalization, which has one group
/// per channel.
class GroupNormalization final : public Op {
 public:
  GroupNormalization(std::string_view type, bool per_channel)
      : type_(type), per_channel_(per_channel) {}
  std::string_view type() const override { return type_; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check = per_channel_ ? OpChecks(c, {"x", "scale", "b"}, 3, {"epsilon"})
                                  : OpChecks(c, {"x", "scale", "b"}, 3, {"epsilon", "num_groups"});
    check.float_type(0).rank_at_least(0, per_channel_ ? 3 : 2).not_empty(0);
    if (!check.ok()) return check.error();
    const TensorType& x = c.input(0);
    const int64_t channels = x.shape[1];
    for (const int64_t i : {1, 2}) check.same_dtype(i, 0).shape(i, {channels});
    const double epsilon = c.attributes().get_float("epsilon", 1e-5);
    check.require(epsilon > 0 && epsilon <= 1, "ATTRIBUTE_OUT_OF_RANGE", "epsilon",
                  std::to_string(epsilon) + " is out of range, expected above 0, at most 1");
    const int64_t groups = per_channel_ ? channels : c.attributes().get_int("num_groups", 0);
    check.require(groups >= 1 && channels % groups == 0, "ATTRIBUTE_OUT_OF_RANGE", "num_groups",
                  std::to_string(groups) + " does not divide the " + std::to_string(channels) +
                      " channels of " + x.shape.to_string() + ", expected a divisor of them");
    if (!check.ok()) return check.error();
    check.require(
        x.shape.elements() / (x.shape[0] * groups) >= 2, "SHAPE_MISMATCH", "x",
        "shape " + x.shape.to_string() + " has 1 value in each group, expected 2 or more");
    if (!check.ok()) return check.error();
    const TensorType statistics{{x.shape[0], groups}, x.dtype};
    return std::vector{x, statistics, statistics};
  }

  void differentiate(GradientContext& c) const override {
    TRAINYARD_CHECK(c.output(1) != kNoTensor && c.output(2) != kNoTensor,
                    c.node().name + ": backward needs mean and inv_std");
    const std::vector<bool> wanted = {c.needs_grad(0), c.needs_grad(1), c.needs_grad(2)};
    const auto grads =
        c.add("grad", *group_normalization_grad_op(), {},
              {c.input(0), c.input(1), c.output(1), c.output(2), c.grad_output(0)}, wanted);
    for (int64_t i = 0; i < 3; ++i) {
      if (wanted[static_cast<size_t>(i)]) c.set_grad(i, grads[static_cast<size_t>(i)]);
    }
  }

  Cost cost(const Graph& graph, const Node& node) const override {
    return cost_per_element(*this, graph, node, 8);
  }
  std::vector<std::pair<int64_t, int64_t>> may_alias(const Node&) const override {
    return {{0, 0}};
  }
  LayoutRule layout_rule() const override { return LayoutRule::kChannelsLastToo; }
  PrecisionRule precision_rule() const override { return {.f32_outputs = {1, 2}}; }

 private:
  std::string_view type_;
  bool per_channel_;
};

class GroupNormalizationGrad final : public Op {
 public:
  std::string_view type() const override { return "GroupNormalizationGrad"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"x", "scale", "mean", "inv_std", "dy"}, 5);
    check.float_type(0).rank_at_least(0, 2).not_empty(0);
    if (!check.ok()) return check.error();
    const TensorType& x = c.input(0);
    check.same_dtype(1, 0).shape(1, {x.shape[1]});
    check.same_dtype(2, 0).rank(2, 2).not_empty(2).same_dtype(3, 0).same_shape(3, 2);
    check.same_dtype(4, 0).same_shape(4, 0);
    if (!check.ok()) return check.error();
    const Shape& statistics = c.input(2).shape;
    check.require(statistics[0] == x.shape[0] && x.shape[1] % statistics[1] == 0, "SHAPE_MISMATCH",
                  "mean",
                  "shape " + statistics.to_string() + " does not group the channels of " +
                      x.shape.to_string());
    if (!check.ok()) return check.error();
    return std::vector{x, c.input(1), c.input(1)};
  }

  Cost cost(const Graph& graph, const Node& node) const override {
    return cost_per_element(*this, graph, node, 12);
  }
  std::vector<std::pair<int64_t, int64_t>> may_alias(const Node&) const override {
    return {{0, 4}};
  }
  LayoutRule layout_rule() const override { return LayoutRule::kChannelsLastToo; }
};

}  // namespace

const Op* group_normalization_op() {
  static const GroupNormalization op("GroupNormalization", /*per_channel=*/false);
  return &op;
}
const Op* instance_normalization_op() {
  static const GroupNormalization op("InstanceNormalization", /*per_channel=*/true);
  return &op;
}
const Op* group_normalization_grad_op() {
  static const GroupNormalizationGrad op;
  return &op;
}

}  // namespace trainyard
