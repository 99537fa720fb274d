#include "src/ops/lion_update.h"

#include "src/ops/shape_helpers.h"
#include "src/ops/shards.h"

namespace trainyard {
namespace {

class LionUpdate final : public Op {
 public:
  std::string_view type() const override { return "LionUpdate"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"p", "g", "learning_rate", "m", "rows"}, 4,
                   {"beta1", "beta2", "weight_decay", "rate_factor", kRank, kRanks});
    check.float_type(0).dtype(2, DType::kF32).shape(2, {1});
    if (!check.ok()) return check.error();
    check_updated(check, c, {1, 3}, 4);
    if (!check.ok()) return check.error();
    return std::vector<TensorType>{};
  }

  Cost cost(const Graph& graph, const Node& node) const override {
    return update_cost(*this, graph, node, 9);
  }
  std::optional<std::vector<Spread>> spread(const std::vector<Spread>& inputs,
                                            size_t) const override {
    return spread_updated(inputs, {1, 3});
  }
  std::vector<int64_t> mutated_inputs(const Node&) const override { return {0, 3}; }
};

}  // namespace

const Op* lion_update_op() {
  static const LionUpdate op;
  return &op;
}

}  // namespace trainyard
