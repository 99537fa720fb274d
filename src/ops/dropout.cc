#include "src/ops/dropout.h"

#include <limits>

#include "src/ops/activation.h"
#include "src/ops/shape_helpers.h"

namespace trainyard {
namespace {

void check_units(OpChecks& check, const InferContext& c) {
  check.int_in(kDrawnUnits, 0, 0, std::numeric_limits<int32_t>::max());
  const int64_t units = c.attributes().get_int(kDrawnUnits, 0);
  check.int_in(kFirstDrawnUnit, 0, 0, units);
  if (!check.ok() || units == 0) return;
  check.rank(0, 2);
  if (!check.ok()) return;
  const int64_t first = c.attributes().get_int(kFirstDrawnUnit, 0), own = c.input(0).shape[1];
  const bool are_drawn_together = units % kUnitsDrawnTogether == 0 &&
                                  first % kUnitsDrawnTogether == 0 &&
                                  own % kUnitsDrawnTogether == 0;
  check.require(are_drawn_together && own <= units, "ATTRIBUTE_OUT_OF_RANGE", kDrawnUnits,
                std::to_string(own) + " from " + std::to_string(first) + " on of " +
                    std::to_string(units) + ", expected multiples of 4");
}

std::optional<std::vector<Spread>> spread_dropout(const std::vector<Spread>& inputs) {
  return inputs[1] == Spread::kOwn ? spread_elementwise({inputs[0]}, 1) : std::nullopt;
}

Result<std::vector<TensorType>> infer_dropout(const InferContext& c, std::string_view input) {
  OpChecks check(c, {input, "step"}, 2,
                 {"ratio", "seed", "stream", "rank", kDrawnUnits, kFirstDrawnUnit});
  check.float_type(0);
  check_dropout(check, c, 1);
  check_units(check, c);
  if (!check.ok()) return check.error();
  return std::vector{c.input(0)};
}

Cost dropout_cost(const Op& op, const Graph& graph, const Node& node) {
  Cost cost = op.Op::cost(graph, node);
  cost.flops = 2 * graph.tensor(node.outputs[0]).type.shape.elements();
  return cost;
}

class DropoutGrad final : public Op {
 public:
  std::string_view type() const override { return "DropoutGrad"; }
  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    return infer_dropout(c, "dy");
  }
  Cost cost(const Graph& graph, const Node& node) const override {
    return dropout_cost(*this, graph, node);
  }
  std::vector<std::pair<int64_t, int64_t>> may_alias(const Node&) const override {
    return {{0, 0}};
  }
  std::optional<std::vector<Spread>> spread(const std::vector<Spread>& inputs,
                                            size_t) const override {
    return spread_dropout(inputs);
  }
  LayoutRule layout_rule() const override { return LayoutRule::kFollow; }
};

class Dropout final : public Op {
 public:
  std::string_view type() const override { return "Dropout"; }
  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    return infer_dropout(c, "x");
  }
  void differentiate(GradientContext& c) const override {
    c.set_grad(0, c.add("grad", *dropout_grad_op(), c.node().attributes,
                        {c.grad_output(0), c.input(1)}, {true})[0]);
  }
  Cost cost(const Graph& graph, const Node& node) const override {
    return dropout_cost(*this, graph, node);
  }
  std::vector<std::pair<int64_t, int64_t>> may_alias(const Node&) const override {
    return {{0, 0}};
  }
  std::optional<std::vector<Spread>> spread(const std::vector<Spread>& inputs,
                                            size_t) const override {
    return spread_dropout(inputs);
  }
  LayoutRule layout_rule() const override { return LayoutRule::kFollow; }
};

}  // namespace

void check_dropout(OpChecks& check, const InferContext& c, int64_t step) {
  check.dtype(step, DType::kI64).shape(step, {1});
  check.int_in("stream", 0, 0, std::numeric_limits<uint32_t>::max());
  check.int_in("rank", 0, 0, std::numeric_limits<int32_t>::max());
  if (!check.ok()) return;
  const double ratio = c.attributes().get_float("ratio", -1);
  check.require(c.attributes().find("ratio") != nullptr, "ATTRIBUTE_REQUIRED", "ratio",
                "this attribute is required");
  check.require(ratio >= 0 && ratio < 1, "ATTRIBUTE_OUT_OF_RANGE", "ratio",
                std::to_string(ratio) + " is out of range, expected 0 or more and less than 1");
}

const Op* dropout_op() {
  static const Dropout op;
  return &op;
}
const Op* dropout_grad_op() {
  static const DropoutGrad op;
  return &op;
}

}  // namespace trainyard
