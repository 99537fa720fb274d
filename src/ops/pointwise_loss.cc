#include "src/ops/pointwise_loss.h"

#include <cmath>
#include <deque>

#include "src/ops/shape_helpers.h"

namespace trainyard {
namespace {

struct LossRow {
  std::string_view type, grad_type;
  int64_t flops = 1;  // per element, for the forecast of costs
  std::vector<std::string_view> attributes = {};
  bool takes_classes = false;
};

#define TRAINYARD_TYPES(name) name, name "Grad"
const std::vector<LossRow>& loss_rows() {
  static const std::vector<LossRow> table = {
      {TRAINYARD_TYPES("MeanSquaredError"), 3},
      {TRAINYARD_TYPES("MeanAbsoluteError"), 3},
      {TRAINYARD_TYPES("HuberLoss"), 5, {"delta"}},
      {TRAINYARD_TYPES("BinaryCrossEntropyLoss"), 30, {"pos_weight"}, /*takes_classes=*/true},
  };
  return table;
}
#undef TRAINYARD_TYPES

// Does the checks common to the forward and the gradient op.
void check_inputs(OpChecks& check, const InferContext& c, const LossRow& row) {
  check.float_type(0).not_empty(0);
  if (row.takes_classes && check.ok() && c.input(1).dtype == DType::kI32) {
    const int64_t count = c.input(0).shape.elements();
    check.require(c.input(1).shape.elements() == count, "SHAPE_MISMATCH", check.input_name(1),
                  "shape " + c.input(1).shape.to_string() + " has not one class for each of " +
                      std::to_string(count) + " predictions");
  } else {
    check.same_dtype(1, 0).same_shape(1, 0);
  }
  for (const std::string_view name : row.attributes) {
    const double value = c.attributes().get_float(name, 1);
    check.require(std::isfinite(value) && value > 0, "ATTRIBUTE_OUT_OF_RANGE", name,
                  "is not a number more than 0");
  }
}

class PointwiseLossGrad final : public Op {
 public:
  explicit PointwiseLossGrad(const LossRow& row) : row_(row) {}
  std::string_view type() const override { return row_.grad_type; }
  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"prediction", "target", "dloss"}, 3, row_.attributes);
    check_inputs(check, c, row_);
    check.same_dtype(2, 0).shape(2, {1});
    if (!check.ok()) return check.error();
    return std::vector{c.input(0)};
  }
  Cost cost(const Graph& graph, const Node& node) const override {
    Cost cost = Op::cost(graph, node);
    cost.flops = row_.flops * graph.tensor(node.inputs[0]).type.shape.elements();
    return cost;
  }
  std::vector<std::pair<int64_t, int64_t>> may_alias(const Node&) const override {
    return {{0, 0}};
  }
  PrecisionRule precision_rule() const override { return {.f32_outputs = {0}, .f32_inputs = {2}}; }

 private:
  const LossRow& row_;
};

class PointwiseLoss final : public Op {
 public:
  PointwiseLoss(const LossRow& row, const Op& grad) : row_(row), grad_(grad) {}
  std::string_view type() const override { return row_.type; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"prediction", "target"}, 2, row_.attributes);
    check_inputs(check, c, row_);
    if (!check.ok()) return check.error();
    return std::vector{TensorType{{1}, c.input(0).dtype}};
  }

  void differentiate(GradientContext& c) const override {
    TRAINYARD_CHECK(!c.needs_grad(1), c.node().name + ": the target has no gradient");
    c.set_grad(0, c.add("grad", grad_, c.node().attributes,
                        {c.input(0), c.input(1), c.grad_output(0)}, {true})[0]);
  }

  Cost cost(const Graph& graph, const Node& node) const override {
    Cost cost = Op::cost(graph, node);
    cost.flops = row_.flops * graph.tensor(node.inputs[0]).type.shape.elements();
    return cost;
  }
  PrecisionRule precision_rule() const override {
    return {.f32_outputs = {0}, .f32_inputs = {0, 1}};
  }

 private:
  const LossRow& row_;
  const Op& grad_;
};

}  // namespace

std::span<const Op* const> pointwise_loss_ops() {
  static const std::vector<const Op*> ops = [] {
    static std::deque<PointwiseLossGrad> grads;  // a deque never moves its elements
    static std::deque<PointwiseLoss> forwards;
    std::vector<const Op*> all;
    for (const LossRow& row : loss_rows()) {
      all.push_back(&grads.emplace_back(row));
      all.push_back(&forwards.emplace_back(row, grads.back()));
    }
    return all;
  }();
  return ops;
}

}  // namespace trainyard
