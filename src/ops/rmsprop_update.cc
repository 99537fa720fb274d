#include "src/ops/rmsprop_update.h"

#include "src/ops/shape_helpers.h"

namespace trainyard {
namespace {

class RmspropUpdate final : public Op {
 public:
  std::string_view type() const override { return "RmspropUpdate"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"p", "g", "learning_rate", "square", "grad_avg", "momentum_buffer"}, 4,
                   {"alpha", "epsilon", "momentum", "weight_decay", "rate_factor"});
    check.float_type(0).dtype(2, DType::kF32).shape(2, {1});
    for (const int64_t i : {1, 3, 4, 5}) check.same_dtype(i, 0).same_shape(i, 0);
    if (!check.ok()) return check.error();
    check.require((c.attributes().get_float("momentum", 0) != 0) == c.has_input(5),
                  "ATTRIBUTE_OUT_OF_RANGE", "momentum",
                  "needs the input momentum_buffer, and that needs it");
    if (!check.ok()) return check.error();
    return std::vector<TensorType>{};
  }

  Cost cost(const Graph& graph, const Node& node) const override {
    Cost cost = Op::cost(graph, node);
    cost.flops = 14 * graph.tensor(node.inputs[0]).type.shape.elements();
    return cost;
  }
  std::vector<int64_t> mutated_inputs() const override { return {0, 3, 4, 5}; }
};

}  // namespace

const Op* rmsprop_update_op() {
  static const RmspropUpdate op;
  return &op;
}

}  // namespace trainyard
