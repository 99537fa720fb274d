#include "src/ops/adam_update.h"

#include "src/ops/shape_helpers.h"

namespace trainyard {
namespace {

class AdamUpdate final : public Op {
 public:
  explicit AdamUpdate(std::string_view type) : type_(type) {}
  std::string_view type() const override { return type_; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"p", "g", "learning_rate", "step", "m", "v"}, 6,
                   {"beta1", "beta2", "epsilon", "weight_decay", "rate_factor"});
    check.float_type(0).dtype(2, DType::kF32).shape(2, {1}).dtype(3, DType::kI64).shape(3, {1});
    for (const int64_t i : {1, 4, 5}) check.same_dtype(i, 0).same_shape(i, 0);
    if (!check.ok()) return check.error();
    return std::vector<TensorType>{};
  }

  Cost cost(const Graph& graph, const Node& node) const override {
    Cost cost = Op::cost(graph, node);
    cost.flops = 14 * graph.tensor(node.inputs[0]).type.shape.elements();
    return cost;
  }
  std::vector<int64_t> mutated_inputs() const override { return {0, 4, 5}; }

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
