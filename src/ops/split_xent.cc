#include "src/ops/split_xent.h"

#include <limits>

#include "kernels/split_xent.h"
#include "src/ops/shape_helpers.h"
#include "src/ops/shards.h"
#include "src/ops/softmax_xent.h"

namespace trainyard {
namespace {

constexpr const char* kClassCount = "classes";

OpChecks split_checks(const InferContext& c, std::initializer_list<std::string_view> inputs) {
  return {c,
          inputs,
          static_cast<int64_t>(inputs.size()),
          {kClassCount, kRank, kRanks, "label_smoothing", "ignore_index", "class_weights"}};
}

/// Does the checks common to all three ops: input 0 has a column for each of this rank's classes,
/// input 1 is the labels. `scores` is the name of input 0 in messages.
void check_parts(OpChecks& check, const InferContext& c, std::string_view scores) {
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  check.float_type(0).rank(0, 2).not_empty(0).dtype(1, DType::kI32);
  check.int_in(kClassCount, 0, 2, kMax).int_in(kRanks, 0, 1, kMax);
  if (!check.ok()) return;
  const Shape& z = c.input(0).shape;
  const int64_t ranks = c.attributes().get_int(kRanks, 1);
  const int64_t classes = c.attributes().get_int(kClassCount, 0);
  check.int_in(kRank, 0, 0, ranks - 1).shape(1, {z[0]});
  check.require(z[1] >= classes_of_rank(classes, ranks), "SHAPE_MISMATCH", scores,
                "shape " + z.to_string() + " on " + std::to_string(ranks) + " ranks has not all " +
                    std::to_string(classes) + " classes");
  check_class_attributes(check, c.attributes(), classes);
}

Cost cost_of_parts(const Op& op, const Graph& graph, const Node& node, int64_t flops_per_element) {
  Cost cost = op.Op::cost(graph, node);
  cost.flops = flops_per_element * graph.tensor(node.inputs[0]).type.shape.elements();
  return cost;
}

class ClassSoftmax final : public Op {
 public:
  std::string_view type() const override { return "ClassSoftmax"; }
  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check = split_checks(c, {"z", "labels"});
    check_parts(check, c, "z");
    if (!check.ok()) return check.error();
    const TensorType& z = c.input(0);
    return std::vector{TensorType{{z.shape[0], kernels::kClassStatistics}, z.dtype}, z};
  }
  void differentiate(GradientContext& c) const override {
    if (c.grad_output(1) != kNoTensor) c.set_grad(0, c.grad_output(1));
  }
  std::optional<std::vector<Spread>> spread(const std::vector<Spread>& inputs,
                                            size_t) const override {
    using enum Spread;
    if (inputs != std::vector{kClasses, kGathered}) return std::nullopt;
    return std::vector{kClasses, kClasses};
  }
  Cost cost(const Graph& graph, const Node& node) const override {
    return cost_of_parts(*this, graph, node, 15);
  }
  std::vector<std::pair<int64_t, int64_t>> may_alias(const Node&) const override {
    return {{1, 0}};
  }
  PrecisionRule precision_rule() const override {
    return {.f32_outputs = {0, 1}, .f32_inputs = {0}};
  }
};

class SplitXent final : public Op {
 public:
  std::string_view type() const override { return "SplitSoftmaxCrossEntropyLoss"; }
  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check = split_checks(c, {"q", "labels", "statistics"});
    check_parts(check, c, "q");
    if (!check.ok()) return check.error();
    const TensorType& q = c.input(0);
    check.same_dtype(2, 0).shape(
        2, {c.attributes().get_int(kRanks, 1) * q.shape[0], kernels::kClassStatistics});
    if (!check.ok()) return check.error();
    return std::vector{TensorType{{1}, q.dtype}, q};
  }
  void differentiate(GradientContext& c) const override {
    TRAINYARD_CHECK(c.grad_output(1) == kNoTensor,
                    c.node().name + ": prob is for reading, it has no gradient");
    c.set_grad(0, c.add("grad", *split_xent_grad_op(), c.node().attributes,
                        {c.output(1), c.input(1), c.grad_output(0)}, {true})[0]);
  }
  std::optional<std::vector<Spread>> spread(const std::vector<Spread>& inputs,
                                            size_t) const override {
    using enum Spread;
    if (inputs != std::vector{kClasses, kGathered, kGathered}) return std::nullopt;
    return std::vector{kOwn, kClasses};
  }
  Cost cost(const Graph& graph, const Node& node) const override {
    return cost_of_parts(*this, graph, node, 1);
  }
  std::vector<std::pair<int64_t, int64_t>> may_alias(const Node&) const override {
    return {{1, 0}};
  }
  PrecisionRule precision_rule() const override {
    return {.f32_outputs = {0, 1}, .f32_inputs = {0, 2}};
  }
};

class SplitXentGrad final : public Op {
 public:
  std::string_view type() const override { return "SplitSoftmaxCrossEntropyLossGrad"; }
  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check = split_checks(c, {"prob", "labels", "dloss"});
    check_parts(check, c, "prob");
    check.same_dtype(2, 0).shape(2, {1});
    if (!check.ok()) return check.error();
    return std::vector{c.input(0)};
  }
  std::optional<std::vector<Spread>> spread(const std::vector<Spread>& inputs,
                                            size_t) const override {
    using enum Spread;
    if (inputs != std::vector{kClasses, kGathered, kOwn}) return std::nullopt;
    return std::vector{kClasses};
  }
  Cost cost(const Graph& graph, const Node& node) const override {
    return cost_of_parts(*this, graph, node, 2);
  }
  std::vector<std::pair<int64_t, int64_t>> may_alias(const Node&) const override {
    return {{0, 0}};
  }
  PrecisionRule precision_rule() const override { return {.f32_outputs = {0}, .f32_inputs = {2}}; }
};

}  // namespace

const Op* class_softmax_op() {
  static const ClassSoftmax op;
  return &op;
}
const Op* split_xent_op() {
  static const SplitXent op;
  return &op;
}
const Op* split_xent_grad_op() {
  static const SplitXentGrad op;
  return &op;
}

}  // namespace trainyard
