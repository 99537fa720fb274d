#include "src/ops/arithmetic.h"

#include <array>

#include "src/ops/axes.h"

namespace trainyard {

Result<std::vector<TensorType>> infer_broadcast(const InferContext& c) {
  OpChecks check(c, {"a", "b"}, 2);
  check.float_type(0).same_dtype(1, 0).not_empty(0).not_empty(1);
  const Shape y = checked_broadcast(check, c, 0, 1);
  if (!check.ok()) return check.error();
  return std::vector{TensorType{y, c.input(0).dtype}};
}

namespace {

Cost arithmetic_cost(const Op& op, const Graph& graph, const Node& node, const Shape& y,
                     int64_t flops) {
  Cost cost = op.Op::cost(graph, node);
  cost.flops = flops * y.elements();
  return cost;
}

const Shape& input_shape(const GradientContext& c, int64_t i) {
  return c.graph().tensor(c.input(i)).type.shape;
}

/// (a, b, dy) -> da, db; both have the shape of dy.
class ArithmeticGrad final : public Op {
 public:
  ArithmeticGrad(std::string_view type, int64_t flops) : type_(type), flops_(flops) {}
  std::string_view type() const override { return type_; }
  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"a", "b", "dy"}, 3);
    check.float_type(0).same_dtype(1, 0).same_dtype(2, 0);
    check.shape(2, checked_broadcast(check, c, 0, 1));
    if (!check.ok()) return check.error();
    return std::vector{c.input(2), c.input(2)};
  }
  Cost cost(const Graph& graph, const Node& node) const override {
    return arithmetic_cost(*this, graph, node, graph.tensor(node.inputs[2]).type.shape, flops_);
  }
  std::vector<std::pair<int64_t, int64_t>> may_alias(const Node&) const override {
    return {{0, 2}, {1, 2}};
  }
  LayoutRule layout_rule() const override { return LayoutRule::kFollow; }

 private:
  std::string_view type_;
  int64_t flops_;
};

class Arithmetic : public Op {
 public:
  Arithmetic(std::string_view type, int64_t flops) : type_(type), flops_(flops) {}
  std::string_view type() const override { return type_; }
  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    return infer_broadcast(c);
  }
  Cost cost(const Graph& graph, const Node& node) const override {
    return arithmetic_cost(*this, graph, node, graph.tensor(node.outputs[0]).type.shape, flops_);
  }
  // The plan shares memory only between tensors of the same size, so never between the output and
  // an operand that is broadcast.
  std::vector<std::pair<int64_t, int64_t>> may_alias(const Node&) const override {
    return {{0, 0}, {0, 1}};
  }
  LayoutRule layout_rule() const override { return LayoutRule::kFollow; }

 private:
  std::string_view type_;
  int64_t flops_;
};

class Differentiable final : public Arithmetic {
 public:
  Differentiable(std::string_view type, const Op& grad, int64_t flops)
      : Arithmetic(type, flops), grad_(grad) {}
  void differentiate(GradientContext& c) const override {
    const std::vector<bool> wanted = {c.needs_grad(0), c.needs_grad(1)};
    const auto slopes =
        c.add("grad", grad_, {}, {c.input(0), c.input(1), c.grad_output(0)}, wanted);
    for (int64_t i = 0; i < 2; ++i) {
      const auto k = static_cast<size_t>(i);
      if (!wanted[k]) continue;
      c.set_grad(i, sum_to(c, i == 0 ? "grad_a" : "grad_b", slopes[k], input_shape(c, i)));
    }
  }

 private:
  const Op& grad_;
};

class Sub final : public Arithmetic {
 public:
  Sub() : Arithmetic("Sub", 1) {}
  void differentiate(GradientContext& c) const override {
    const TensorId dy = c.grad_output(0);
    if (c.needs_grad(0)) c.set_grad(0, sum_to(c, "grad_a", dy, input_shape(c, 0)));
    if (!c.needs_grad(1)) return;
    const TensorId summed = sum_to(c, "grad_b", dy, input_shape(c, 1));
    c.set_grad(1, c.add("grad_neg", get_op("Neg"), {}, {summed}, {true})[0]);
  }
};

}  // namespace

std::span<const Op* const> arithmetic_ops() {
  static const ArithmeticGrad mul_grad("MulGrad", 2), div_grad("DivGrad", 4),
      pow_grad("PowGrad", 100), min_grad("MinGrad", 2), max_grad("MaxGrad", 2),
      prelu_grad("PReluGrad", 2);
  static const Sub sub;
  static const Differentiable mul("Mul", mul_grad, 1), div("Div", div_grad, 1),
      pow("Pow", pow_grad, 50), min("Min", min_grad, 1), max("Max", max_grad, 1),
      prelu("PRelu", prelu_grad, 1);
  static const std::array<const Op*, 13> ops = {
      &sub,      &mul,      &div,      &pow,      &min,      &max,       &prelu,
      &mul_grad, &div_grad, &pow_grad, &min_grad, &max_grad, &prelu_grad};
  return ops;
}

}  // namespace trainyard
