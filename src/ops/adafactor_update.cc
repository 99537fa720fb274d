#include "src/ops/adafactor_update.h"

#include "src/ops/shape_helpers.h"

namespace trainyard {
namespace {

class AdafactorUpdate final : public Op {
 public:
  std::string_view type() const override { return "AdafactorUpdate"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(
        c, {"p", "g", "learning_rate", "step", "column", "row"}, 5,
        {"beta2_decay", "epsilon", "scale_min", "clip_threshold", "weight_decay", "rate_factor"});
    check.float_type(0).rank_at_least(0, 1).same_dtype(1, 0).same_shape(1, 0);
    check.dtype(2, DType::kF32).shape(2, {1}).dtype(3, DType::kI64).shape(3, {1});
    if (!check.ok()) return check.error();
    const FactoredShapes shapes = factored_shapes(c.input(0).shape);
    check.same_dtype(4, 0).shape(4, shapes.column).same_dtype(5, 0).shape(5, shapes.row);
    if (!check.ok()) return check.error();
    check.require(c.has_input(5) == (c.input(0).shape.rank() > 1), "INPUT_COUNT", "row",
                  "belongs to matrices, which need it");
    if (!check.ok()) return check.error();
    return std::vector<TensorType>{};
  }

  Cost cost(const Graph& graph, const Node& node) const override {
    Cost cost = Op::cost(graph, node);
    cost.flops = 20 * graph.tensor(node.inputs[0]).type.shape.elements();
    return cost;
  }
  std::vector<int64_t> mutated_inputs(const Node&) const override { return {0, 4, 5}; }
};

}  // namespace

const Op* adafactor_update_op() {
  static const AdafactorUpdate op;
  return &op;
}

FactoredShapes factored_shapes(const Shape& parameter) {
  std::vector<int64_t> dims(parameter.dims().begin(), parameter.dims().end());
  if (dims.size() < 2) return {Shape(), parameter};
  const int64_t columns = dims.back();
  dims.pop_back();
  FactoredShapes shapes;
  shapes.row = Shape(dims);
  dims.back() = columns;
  shapes.column = Shape(dims);
  return shapes;
}

}  // namespace trainyard
