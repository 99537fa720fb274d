#include "src/ops/add.h"

#include "src/ops/arithmetic.h"
#include "src/ops/axes.h"

namespace trainyard {
namespace {

class Add final : public Op {
 public:
  std::string_view type() const override { return "Add"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    return infer_broadcast(c);
  }

  void differentiate(GradientContext& c) const override {
    for (int64_t i = 0; i < 2; ++i) {
      if (!c.needs_grad(i)) continue;
      c.set_grad(i, sum_to(c, i == 0 ? "grad_a" : "grad_b", c.grad_output(0),
                           c.graph().tensor(c.input(i)).type.shape));
    }
  }

  Cost cost(const Graph& graph, const Node& node) const override {
    Cost cost = Op::cost(graph, node);
    cost.flops = graph.tensor(node.outputs[0]).type.shape.elements();
    return cost;
  }

  std::optional<std::vector<Spread>> spread(const std::vector<Spread>& inputs,
                                            size_t outputs) const override {
    // The gradients of a table that both the head and a lookup read (gather.h).
    if (inputs == std::vector{Spread::kClasses, Spread::kClasses}) {
      return std::vector{Spread::kClasses};
    }
    return Op::spread(inputs, outputs);
  }
  std::vector<std::pair<int64_t, int64_t>> may_alias(const Node&) const override {
    return {{0, 0}, {0, 1}};
  }
  LayoutRule layout_rule() const override { return LayoutRule::kFollow; }
};

}  // namespace

const Op* add_op() {
  static const Add op;
  return &op;
}

}  // namespace trainyard
