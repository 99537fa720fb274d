#include "src/ops/muon_update.h"

#include <algorithm>

#include "src/ops/shape_helpers.h"

namespace trainyard {
namespace {

class MuonUpdate final : public Op {
 public:
  std::string_view type() const override { return "MuonUpdate"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(
        c, {"p", "g", "learning_rate", "m"}, 4,
        {"momentum", "nesterov", "weight_decay", "iterations", "match_adamw", "rate_factor"});
    check.float_type(0).rank(0, 2).dtype(2, DType::kF32).shape(2, {1});
    for (const int64_t i : {1, 3}) check.same_dtype(i, 0).same_shape(i, 0);
    check.int_in("nesterov", 1, 0, 1).int_in("match_adamw", 0, 0, 1).int_in("iterations", 5, 1, 99);
    if (!check.ok()) return check.error();
    return std::vector<TensorType>{};
  }

  Cost cost(const Graph& graph, const Node& node) const override {
    Cost cost = Op::cost(graph, node);
    const Shape& p = graph.tensor(node.inputs[0]).type.shape;
    const int64_t side = std::min(p[0], p[1]), length = std::max(p[0], p[1]);
    const int64_t iteration = 2 * side * side * (2 * length + side) + 3 * side * (side + length);
    cost.flops = node.attributes.get_int("iterations", 5) * iteration + 10 * side * length;
    return cost;
  }
  std::vector<int64_t> mutated_inputs(const Node&) const override { return {0, 3}; }
};

}  // namespace

const Op* muon_update_op() {
  static const MuonUpdate op;
  return &op;
}

}  // namespace trainyard
