#include "src/ops/embedding_bag.h"

#include "src/ops/shape_helpers.h"

namespace trainyard {
namespace {

constexpr int64_t kRowsMax = int64_t{1} << 31;

void check_mode(OpChecks& check, const InferContext& c, int64_t rows) {
  const std::string mode = c.attributes().get_string("mode", "mean");
  check.require(mode == "mean" || mode == "sum", "ATTRIBUTE_OUT_OF_RANGE", "mode",
                "'" + mode + "' is not known, expected mean or sum");
  check.int_in("padding_idx", -1, -1, rows - 1);
}

int64_t bag_flops(const Graph& graph, TensorId tokens, TensorId vectors) {
  return 2 * graph.tensor(tokens).type.shape.elements() * graph.tensor(vectors).type.shape[1];
}

class EmbeddingBag final : public Op {
 public:
  std::string_view type() const override { return "EmbeddingBag"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"table", "tokens"}, 2, {"mode", "padding_idx"});
    check.float_type(0).rank(0, 2).not_empty(0).dtype(1, DType::kI32).rank(1, 2).not_empty(1);
    if (!check.ok()) return check.error();
    check_mode(check, c, c.input(0).shape[0]);
    if (!check.ok()) return check.error();
    return std::vector{TensorType{{c.input(1).shape[0], c.input(0).shape[1]}, c.input(0).dtype}};
  }

  void differentiate(GradientContext& c) const override {
    if (!c.needs_grad(0)) return;
    Attributes attributes = c.node().attributes;
    attributes.set("rows", c.graph().tensor(c.input(0)).type.shape[0]);
    c.set_grad(0, c.add("grad", *embedding_bag_grad_op(), std::move(attributes),
                        {c.input(1), c.grad_output(0)}, {true})[0]);
  }

  Cost cost(const Graph& graph, const Node& node) const override {
    Cost cost = Op::cost(graph, node);
    cost.flops = bag_flops(graph, node.inputs[1], node.inputs[0]);
    return cost;
  }
};

class EmbeddingBagGrad final : public Op {
 public:
  std::string_view type() const override { return "EmbeddingBagGrad"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"tokens", "dy"}, 2, {"mode", "padding_idx", "rows"});
    check.dtype(0, DType::kI32).rank(0, 2).not_empty(0).float_type(1).rank(1, 2).not_empty(1);
    check.int_in("rows", 0, 1, kRowsMax);
    if (!check.ok()) return check.error();
    const int64_t rows = c.attributes().get_int("rows", 0);
    check_mode(check, c, rows);
    if (check.ok()) check.shape(1, {c.input(0).shape[0], c.input(1).shape[1]});
    if (!check.ok()) return check.error();
    return std::vector{TensorType{{rows, c.input(1).shape[1]}, c.input(1).dtype}};
  }

  Cost cost(const Graph& graph, const Node& node) const override {
    Cost cost = Op::cost(graph, node);
    cost.flops = bag_flops(graph, node.inputs[0], node.inputs[1]);
    return cost;
  }
};

}  // namespace

const Op* embedding_bag_op() {
  static const EmbeddingBag op;
  return &op;
}
const Op* embedding_bag_grad_op() {
  static const EmbeddingBagGrad op;
  return &op;
}

}  // namespace trainyard
