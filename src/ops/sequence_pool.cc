#include "src/ops/sequence_pool.h"

#include "src/ops/shape_helpers.h"

namespace trainyard {
namespace {

void check_mode(OpChecks& check, const InferContext& c) {
  const std::string mode = c.attributes().get_string("mode", "mean");
  check.require(mode == "mean" || mode == "first" || mode == "last", "ATTRIBUTE_OUT_OF_RANGE",
                "mode", "'" + mode + "' is not known, expected mean, first or last");
  check.require(mode != "first" || !c.has_input(1), "INPUT_COUNT_INVALID", "tokens",
                "mode first takes no tokens, expected one input");
}

Cost flops_of_elements(const Op& op, const Graph& graph, const Node& node, TensorId sequence) {
  Cost cost = op.Op::cost(graph, node);
  cost.flops = graph.tensor(sequence).type.shape.elements();
  return cost;
}

class SequencePool final : public Op {
 public:
  std::string_view type() const override { return "SequencePool"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"x", "tokens"}, 1, {"mode"});
    check.float_type(0).rank(0, 3).not_empty(0).dtype(1, DType::kI32);
    check_mode(check, c);
    if (!check.ok()) return check.error();
    const Shape& x = c.input(0).shape;
    check.shape(1, {x[0], x[1]});
    if (!check.ok()) return check.error();
    return std::vector{TensorType{{x[0], x[2]}, c.input(0).dtype}};
  }

  void differentiate(GradientContext& c) const override {
    Attributes attributes = c.node().attributes;
    attributes.set("length", c.graph().tensor(c.input(0)).type.shape[1]);
    std::vector<TensorId> inputs = {c.grad_output(0)};
    if (c.node().inputs.size() > 1) inputs.push_back(c.input(1));
    c.set_grad(0, c.add("grad", *sequence_pool_grad_op(), std::move(attributes), std::move(inputs),
                        {true})[0]);
  }

  Cost cost(const Graph& graph, const Node& node) const override {
    return flops_of_elements(*this, graph, node, node.inputs[0]);
  }
};

class SequencePoolGrad final : public Op {
 public:
  std::string_view type() const override { return "SequencePoolGrad"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"dy", "tokens"}, 1, {"mode", "length"});
    check.float_type(0).rank(0, 2).not_empty(0).dtype(1, DType::kI32);
    check_mode(check, c);
    check.int_in("length", 0, 1, Shape::kElementsMax);
    if (!check.ok()) return check.error();
    const Shape& dy = c.input(0).shape;
    const int64_t length = c.attributes().get_int("length", 0);
    check.shape(1, {dy[0], length});
    if (!check.ok()) return check.error();
    return std::vector{TensorType{{dy[0], length, dy[1]}, c.input(0).dtype}};
  }

  Cost cost(const Graph& graph, const Node& node) const override {
    return flops_of_elements(*this, graph, node, node.outputs[0]);
  }
};

}  // namespace

const Op* sequence_pool_op() {
  static const SequencePool op;
  return &op;
}
const Op* sequence_pool_grad_op() {
  static const SequencePoolGrad op;
  return &op;
}

}  // namespace trainyard
