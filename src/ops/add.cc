#include "src/ops/add.h"

#include "src/ops/shape_helpers.h"

namespace trainyard {
namespace {

class Add final : public Op {
 public:
  std::string_view type() const override { return "Add"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"a", "b"}, 2);
    check.float_type(0).same_dtype(1, 0).same_shape(1, 0);
    if (!check.ok()) return check.error();
    return std::vector{c.input(0)};
  }

  void differentiate(GradientContext& c) const override {
    if (c.needs_grad(0)) c.set_grad(0, c.grad_output(0));
    if (c.needs_grad(1)) c.set_grad(1, c.grad_output(0));
  }

  Cost cost(const Graph& graph, const Node& node) const override {
    Cost cost = Op::cost(graph, node);
    cost.flops = graph.tensor(node.outputs[0]).type.shape.elements();
    return cost;
  }

  std::vector<std::pair<int64_t, int64_t>> may_alias() const override { return {{0, 0}, {0, 1}}; }
  LayoutRule layout_rule() const override { return LayoutRule::kFollow; }
};

}  // namespace

const Op* add_op() {
  static const Add op;
  return &op;
}

}  // namespace trainyard
