#include "src/ops/position_embedding.h"

#include "src/ops/shape_helpers.h"

namespace trainyard {
namespace {

class PositionEmbedding final : public Op {
 public:
  std::string_view type() const override { return "PositionEmbedding"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"x", "position", "prefix"}, 2);
    check.float_type(0).rank(0, 3).not_empty(0).same_dtype(1, 0).rank(1, 2);
    check.same_dtype(2, 0).rank(2, 2).not_empty(2);
    if (!check.ok()) return check.error();
    const Shape& x = c.input(0).shape;
    const int64_t prefix = c.has_input(2) ? c.input(2).shape[0] : 0;
    check.shape(1, {prefix + x[1], x[2]}).shape(2, {prefix, x[2]});
    if (!check.ok()) return check.error();
    return std::vector{TensorType{{x[0], prefix + x[1], x[2]}, c.input(0).dtype}};
  }

  void differentiate(GradientContext& c) const override {
    const bool has_prefix = c.node().inputs.size() > 2 && c.input(2) != kNoTensor;
    const int64_t prefix = has_prefix ? c.graph().tensor(c.input(2)).type.shape[0] : 0;
    const std::vector<bool> wanted = {c.needs_grad(0), c.needs_grad(1),
                                      has_prefix && c.needs_grad(2)};
    const auto grads = c.add("grad", *position_embedding_grad_op(), {{"prefix", prefix}},
                             {c.grad_output(0)}, wanted);
    for (int64_t i = 0; i < 3; ++i) {
      if (wanted[static_cast<size_t>(i)]) c.set_grad(i, grads[static_cast<size_t>(i)]);
    }
  }

  Cost cost(const Graph& graph, const Node& node) const override {
    Cost cost = Op::cost(graph, node);
    cost.flops = graph.tensor(node.outputs[0]).type.shape.elements();
    return cost;
  }
};

class PositionEmbeddingGrad final : public Op {
 public:
  std::string_view type() const override { return "PositionEmbeddingGrad"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"dy"}, 1, {"prefix"});
    check.float_type(0).rank(0, 3).not_empty(0);
    if (check.ok()) check.int_in("prefix", 0, 0, c.input(0).shape[1] - 1);
    if (!check.ok()) return check.error();
    const Shape& dy = c.input(0).shape;
    const int64_t prefix = c.attributes().get_int("prefix", 0);
    const DType dtype = c.input(0).dtype;
    return std::vector{TensorType{{dy[0], dy[1] - prefix, dy[2]}, dtype},
                       TensorType{{dy[1], dy[2]}, dtype}, TensorType{{prefix, dy[2]}, dtype}};
  }

  Cost cost(const Graph& graph, const Node& node) const override {
    Cost cost = Op::cost(graph, node);
    cost.flops = graph.tensor(node.inputs[0]).type.shape.elements();
    return cost;
  }
};

}  // namespace

const Op* position_embedding_op() {
  static const PositionEmbedding op;
  return &op;
}
const Op* position_embedding_grad_op() {
  static const PositionEmbeddingGrad op;
  return &op;
}

}  // namespace trainyard
