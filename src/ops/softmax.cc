#include "src/ops/softmax.h"

#include "src/ops/shape_helpers.h"

namespace trainyard {
namespace {

void check_axis(OpChecks& check, const InferContext& c) {
  check.float_type(0).rank_at_least(0, 1).not_empty(0);
  if (!check.ok()) return;
  const int64_t rank = c.input(0).shape.rank();
  check.int_in("axis", -1, -rank, rank - 1);
}

class SoftmaxGrad final : public Op {
 public:
  explicit SoftmaxGrad(std::string_view type) : type_(type) {}
  std::string_view type() const override { return type_; }
  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"y", "dy"}, 2, {"axis"});
    check_axis(check, c);
    check.same_dtype(1, 0).same_shape(1, 0);
    if (!check.ok()) return check.error();
    return std::vector{c.input(1)};
  }
  Cost cost(const Graph& graph, const Node& node) const override {
    return cost_per_element(*this, graph, node, 4);
  }
  std::vector<std::pair<int64_t, int64_t>> may_alias(const Node&) const override {
    return {{0, 1}};
  }

 private:
  std::string_view type_;
};

class Softmax final : public Op {
 public:
  Softmax(std::string_view type, const Op* grad) : type_(type), grad_(grad) {}
  std::string_view type() const override { return type_; }
  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"x"}, 1, {"axis"});
    check_axis(check, c);
    if (!check.ok()) return check.error();
    return std::vector{c.input(0)};
  }
  void differentiate(GradientContext& c) const override {
    c.set_grad(
        0, c.add("grad", *grad_, c.node().attributes, {c.output(0), c.grad_output(0)}, {true})[0]);
  }
  Cost cost(const Graph& graph, const Node& node) const override {
    return cost_per_element(*this, graph, node, 15);
  }
  std::vector<std::pair<int64_t, int64_t>> may_alias(const Node&) const override {
    return {{0, 0}};
  }

 private:
  std::string_view type_;
  const Op* grad_;
};

}  // namespace

const Op* softmax_op() {
  static const Softmax op("Softmax", softmax_grad_op());
  return &op;
}
const Op* softmax_grad_op() {
  static const SoftmaxGrad op("SoftmaxGrad");
  return &op;
}
const Op* log_softmax_op() {
  static const Softmax op("LogSoftmax", log_softmax_grad_op());
  return &op;
}
const Op* log_softmax_grad_op() {
  static const SoftmaxGrad op("LogSoftmaxGrad");
  return &op;
}

}  // namespace trainyard
