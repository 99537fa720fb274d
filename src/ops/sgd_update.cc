#include "src/ops/sgd_update.h"

#include "src/ops/shape_helpers.h"
#include "src/ops/shards.h"

namespace trainyard {
namespace {

class SgdUpdate final : public Op {
 public:
  std::string_view type() const override { return "SgdUpdate"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"p", "g", "learning_rate", "v", "rows"}, 3,
                   {"momentum", "nesterov", "weight_decay", "rate_factor", kRank, kRanks});
    check.float_type(0).dtype(2, DType::kF32).shape(2, {1}).int_in("nesterov", 0, 0, 1);
    if (!check.ok()) return check.error();
    check_updated(check, c, {1, 3}, 4);
    if (!check.ok()) return check.error();
    check.require((c.attributes().get_float("momentum", 0) != 0) == c.has_input(3),
                  "ATTRIBUTE_OUT_OF_RANGE", "momentum", "needs the input v, and v needs it");
    if (!check.ok()) return check.error();
    return std::vector<TensorType>{};
  }

  Cost cost(const Graph& graph, const Node& node) const override {
    return update_cost(*this, graph, node, 6);
  }
  std::optional<std::vector<Spread>> spread(const std::vector<Spread>& inputs,
                                            size_t) const override {
    return spread_updated(inputs, {1, 3});
  }
  std::vector<int64_t> mutated_inputs(const Node&) const override { return {0, 3}; }
};

}  // namespace

const Op* sgd_update_op() {
  static const SgdUpdate op;
  return &op;
}

}  // namespace trainyard
