#include "src/ops/activation.h"

#include <algorithm>
#include <cmath>
#include <deque>

#include "src/base/text.h"
#include "src/ops/shape_helpers.h"

namespace trainyard {
namespace {

/// The tensor that the gradient reads in addition to dy.
enum class Saved : uint8_t { kX, kY };

struct ActivationRow {
  std::string_view type, grad_type;
  Saved saved = Saved::kX;
  int64_t flops = 1;       // per element, for the forecast of costs
  int64_t grad_flops = 1;  // per element, for the forecast of costs
  std::vector<std::string_view> attributes = {};
};

#define TRAINYARD_TYPES(name) name, name "Grad"
const std::vector<ActivationRow>& activation_rows() {
  static const std::vector<ActivationRow> table = {
      {TRAINYARD_TYPES("Relu"), Saved::kY, 1, 1},
      {TRAINYARD_TYPES("Sigmoid"), Saved::kY, 10, 3},
      {TRAINYARD_TYPES("Tanh"), Saved::kY, 10, 3},
      {TRAINYARD_TYPES("Gelu"), Saved::kX, 15, 20, {"approximate"}},
      {TRAINYARD_TYPES("LeakyRelu"), Saved::kX, 2, 4, {"alpha"}},
      {TRAINYARD_TYPES("ThresholdedRelu"), Saved::kX, 1, 3, {"alpha"}},
      {TRAINYARD_TYPES("Elu"), Saved::kX, 12, 14, {"alpha"}},
      {TRAINYARD_TYPES("Selu"), Saved::kX, 13, 15, {"alpha", "gamma"}},
      {TRAINYARD_TYPES("Celu"), Saved::kX, 13, 15, {"alpha"}},
      {TRAINYARD_TYPES("Softplus"), Saved::kX, 25, 27},
      {TRAINYARD_TYPES("Softsign"), Saved::kX, 3, 5},
      {TRAINYARD_TYPES("HardSigmoid"), Saved::kX, 3, 5, {"alpha", "beta"}},
      {TRAINYARD_TYPES("HardSwish"), Saved::kX, 4, 6},
      {TRAINYARD_TYPES("Swish"), Saved::kX, 15, 17, {"alpha"}},
      {TRAINYARD_TYPES("Mish"), Saved::kX, 20, 22},
      {TRAINYARD_TYPES("Neg"), Saved::kY, 1, 3},
      {TRAINYARD_TYPES("Abs"), Saved::kX, 1, 3},
      {TRAINYARD_TYPES("Exp"), Saved::kY, 12, 14},
      {TRAINYARD_TYPES("Log"), Saved::kX, 20, 22},
      {TRAINYARD_TYPES("Sqrt"), Saved::kY, 1, 3},
      {TRAINYARD_TYPES("Reciprocal"), Saved::kY, 1, 3},
      {TRAINYARD_TYPES("Clip"), Saved::kX, 2, 4, {"min", "max"}},
  };
  return table;
}
#undef TRAINYARD_TYPES

void check_attributes(OpChecks& check, const InferContext& c, const ActivationRow& row) {
  const Attributes& a = c.attributes();
  const auto require = [&](bool holds, std::string_view name, const std::string& text) {
    if (check.ok()) check.require(holds, "ATTRIBUTE_OUT_OF_RANGE", name, text);
  };
  if (row.type == "Gelu") {
    const std::string form = check.ok() ? a.get_string("approximate", "none") : "none";
    return require(form == "none" || form == "tanh", "approximate",
                   quoted_value(form) + " is not known, expected 'none' or 'tanh'");
  }
  for (const std::string_view name : row.attributes) {
    require(std::isfinite(a.get_float(name, 0)), name, "is not a finite number");
  }
  if (row.type == "Celu") {
    require(a.get_float("alpha", 1) != 0, "alpha", "is 0, expected any other number");
  }
  if (row.type == "Clip" && a.find("min") != nullptr && a.find("max") != nullptr) {
    require(a.get_float("min", 0) <= a.get_float("max", 0), "min", "is larger than max");
  }
}

/// Base class of an activation, y = f(x), and of its gradient, dx = df(saved, dy), which share a
/// row of the table.
class RowOp : public Op {
 public:
  RowOp(const ActivationRow& row, int64_t flops) : row_(row), flops_(flops) {}
  std::optional<std::vector<Spread>> spread(const std::vector<Spread>& inputs,
                                            size_t outputs) const override {
    return spread_elementwise(inputs, outputs);
  }
  Cost cost(const Graph& graph, const Node& node) const override {
    return cost_per_element(*this, graph, node, flops_);
  }
  LayoutRule layout_rule() const override { return LayoutRule::kFollow; }

 protected:
  const ActivationRow& row_;

 private:
  const int64_t flops_;
};

class ActivationGrad final : public RowOp {
 public:
  explicit ActivationGrad(const ActivationRow& row) : RowOp(row, row.grad_flops) {}
  std::string_view type() const override { return row_.grad_type; }
  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {row_.saved == Saved::kX ? "x" : "y", "dy"}, 2, row_.attributes);
    check.float_type(0).same_dtype(1, 0).same_shape(1, 0);
    check_attributes(check, c, row_);
    if (!check.ok()) return check.error();
    return std::vector{c.input(1)};
  }
  std::vector<std::pair<int64_t, int64_t>> may_alias(const Node&) const override {
    return {{0, 1}, {0, 0}};
  }
};

class Activation final : public RowOp {
 public:
  Activation(const ActivationRow& row, const Op& grad) : RowOp(row, row.flops), grad_(grad) {}
  std::string_view type() const override { return row_.type; }
  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"x"}, 1, row_.attributes);
    check.float_type(0);
    check_attributes(check, c, row_);
    if (!check.ok()) return check.error();
    return std::vector{c.input(0)};
  }
  void differentiate(GradientContext& c) const override {
    const TensorId saved = row_.saved == Saved::kX ? c.input(0) : c.output(0);
    c.set_grad(0, c.add("grad", grad_, c.node().attributes, {saved, c.grad_output(0)}, {true})[0]);
  }
  std::vector<std::pair<int64_t, int64_t>> may_alias(const Node&) const override {
    return {{0, 0}};
  }

 private:
  const Op& grad_;
};

}  // namespace

std::span<const Op* const> activation_ops() {
  static const std::vector<const Op*> ops = [] {
    static std::deque<ActivationGrad> grads;  // a deque never moves its elements
    static std::deque<Activation> forwards;
    std::vector<const Op*> all;
    for (const ActivationRow& row : activation_rows()) {
      all.push_back(&grads.emplace_back(row));
      all.push_back(&forwards.emplace_back(row, grads.back()));
    }
    return all;
  }();
  return ops;
}

bool is_activation(const Op& op) { return dynamic_cast<const Activation*>(&op) != nullptr; }

const Op* relu_op() {
  static const Op* const op = &get_op("Relu");
  return op;
}
const Op* relu_grad_op() {
  static const Op* const op = &get_op("ReluGrad");
  return op;
}
const Op* gelu_op() {
  static const Op* const op = &get_op("Gelu");
  return op;
}
const Op* gelu_grad_op() {
  static const Op* const op = &get_op("GeluGrad");
  return op;
}

std::optional<std::vector<Spread>> spread_elementwise(const std::vector<Spread>& inputs,
                                                      size_t outputs) {
  const Spread spread = inputs.front();
  const bool fits = spread == Spread::kOwn || spread == Spread::kUnits;
  if (!fits || std::ranges::any_of(inputs, [&](Spread p) { return p != spread; })) {
    return std::nullopt;
  }
  return std::vector(outputs, spread);
}

}  // namespace trainyard
