#include "src/ops/adam_update.h"

#include "src/ops/shape_helpers.h"
#include "src/ops/shards.h"

namespace trainyard {
namespace {

class AdamUpdate final : public Op {
 public:
  explicit AdamUpdate(std::string_view type) : type_(type) {}
  std::string_view type() const override { return type_; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"p", "g", "learning_rate", "step", "m", "v", "rows"}, 6,
                   {"beta1", "beta2", "epsilon", "weight_decay", "rate_factor", kRank, kRanks});
    check.float_type(0).dtype(2, DType::kF32).shape(2, {1}).dtype(3, DType::kI64).shape(3, {1});
    if (!check.ok()) return check.error();
    check_updated(check, c, {1, 4, 5}, 6);
    if (!check.ok()) return check.error();
    return std::vector<TensorType>{};
  }

  Cost cost(const Graph& graph, const Node& node) const override {
    return update_cost(*this, graph, node, 14);
  }
  std::optional<std::vector<Spread>> spread(const std::vector<Spread>& inputs,
                                            size_t) const override {
    return spread_updated(inputs, {1, 4, 5});
  }
  std::vector<int64_t> mutated_inputs(const Node&) const override { return {0, 4, 5}; }

 private:
  std::string_view type_;
};

}  // namespace

const Op* adam_update_op() {
  static const AdamUpdate op("AdamUpdate");
  return &op;
}
const Op* adamw_update_op() {
  static const AdamUpdate op("AdamWUpdate");
  return &op;
}

}  // namespace trainyard
