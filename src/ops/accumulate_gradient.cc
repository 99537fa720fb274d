#include "src/ops/accumulate_gradient.h"

#include "src/ops/shape_helpers.h"
#include "src/ops/shards.h"

namespace trainyard {
namespace {

class AccumulateGradient final : public Op {
 public:
  std::string_view type() const override { return "AccumulateGradient"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"sum", "g", "micro_step"}, 3, {"share"});
    check.float_type(0).same_dtype(1, 0).same_shape(1, 0).dtype(2, DType::kI64).shape(2, {1});
    if (!check.ok()) return check.error();
    return std::vector<TensorType>{};
  }

  Cost cost(const Graph& graph, const Node& node) const override {
    Cost cost = Op::cost(graph, node);
    cost.flops = 2 * graph.tensor(node.inputs[0]).type.shape.elements();
    return cost;
  }
  std::optional<std::vector<Spread>> spread(const std::vector<Spread>& inputs,
                                            size_t) const override {
    return spread_equally(inputs);
  }
  std::vector<int64_t> mutated_inputs(const Node&) const override { return {0}; }
};

}  // namespace

const Op* accumulate_gradient_op() {
  static const AccumulateGradient op;
  return &op;
}

}  // namespace trainyard
