#include "src/ops/lion_update.h"

#include "src/ops/shape_helpers.h"

namespace trainyard {
namespace {

class LionUpdate final : public Op {
 public:
  std::string_view type() const override { return "LionUpdate"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"p", "g", "learning_rate", "m"}, 4,
                   {"beta1", "beta2", "weight_decay", "rate_factor"});
    check.float_type(0).dtype(2, DType::kF32).shape(2, {1});
    for (const int64_t i : {1, 3}) check.same_dtype(i, 0).same_shape(i, 0);
    if (!check.ok()) return check.error();
    return std::vector<TensorType>{};
  }

  Cost cost(const Graph& graph, const Node& node) const override {
    Cost cost = Op::cost(graph, node);
    cost.flops = 9 * graph.tensor(node.inputs[0]).type.shape.elements();
    return cost;
  }
  std::vector<int64_t> mutated_inputs() const override { return {0, 3}; }
};

}  // namespace

const Op* lion_update_op() {
  static const LionUpdate op;
  return &op;
}

}  // namespace trainyard
