#include "src/ops/sequence_pool.h"

#include <algorithm>
#include <limits>

#include "src/ops/shape_helpers.h"

namespace trainyard {
namespace {

void check_mode(OpChecks& check, const InferContext& c) {
  const std::string mode = c.attributes().get_string("mode", "mean");
  check.require(mode == "mean" || mode == "max" || mode == "first" || mode == "last",
                "ATTRIBUTE_OUT_OF_RANGE", "mode",
                "'" + mode + "' is not known, expected mean, max, first or last");
  check.require(mode != "first" || !c.has_input(1), "INPUT_COUNT_INVALID", "tokens",
                "mode first takes no tokens, expected one input");
  check.int_in("padding_id", 0, 0, std::numeric_limits<int32_t>::max());
}

/// Checks the tokens of `sequences` sequences of `length` positions.
void check_tokens(OpChecks& check, const InferContext& c, int64_t sequences, int64_t length) {
  check.dtype(1, DType::kI32).rank(1, 2);
  if (!check.ok() || !c.has_input(1)) return;
  const Shape& tokens = c.input(1).shape;
  const bool is_max = c.attributes().get_string("mode", "mean") == "max";
  check.shape(1, {sequences, is_max ? std::max(tokens[1], length) : length});
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
    OpChecks check(c, {"x", "tokens"}, 1, {"mode", "padding_id"});
    check.float_type(0).rank(0, 3).not_empty(0);
    check_mode(check, c);
    if (!check.ok()) return check.error();
    const Shape& x = c.input(0).shape;
    check_tokens(check, c, x[0], x[1]);
    if (!check.ok()) return check.error();
    return std::vector{TensorType{{x[0], x[2]}, c.input(0).dtype}};
  }

  void differentiate(GradientContext& c) const override {
    Attributes attributes = c.node().attributes;
    attributes.set("length", c.graph().tensor(c.input(0)).type.shape[1]);
    std::vector<TensorId> inputs = {c.grad_output(0)};
    if (c.node().inputs.size() > 1) inputs.push_back(c.input(1));
    if (attributes.get_string("mode", "mean") == "max") {
      inputs.resize(2, kNoTensor);
      inputs.push_back(c.input(0));
    }
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
    OpChecks check(c, {"dy", "tokens", "x"}, 1, {"mode", "length", "padding_id"});
    check.float_type(0).rank(0, 2).not_empty(0);
    check_mode(check, c);
    check.int_in("length", 0, 1, Shape::kElementsMax);
    if (!check.ok()) return check.error();
    const Shape& dy = c.input(0).shape;
    const int64_t length = c.attributes().get_int("length", 0);
    check_tokens(check, c, dy[0], length);
    const bool is_max = c.attributes().get_string("mode", "mean") == "max";
    check.require(is_max == c.has_input(2), "INPUT_COUNT_INVALID", "x",
                  "must be given with mode max, and only then");
    const Shape x{dy[0], length, dy[1]};
    check.same_dtype(2, 0).shape(2, x);
    if (!check.ok()) return check.error();
    return std::vector{TensorType{x, c.input(0).dtype}};
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
