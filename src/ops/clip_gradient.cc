#include "src/ops/clip_gradient.h"

#include "src/ops/shape_helpers.h"

namespace trainyard {
namespace {

class ClipGradient final : public Op {
 public:
  std::string_view type() const override { return "ClipGradient"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"g", "scale"}, 1, {"bound"});
    check.float_type(0).same_dtype(1, 0).shape(1, {1});
    if (!check.ok()) return check.error();
    check.require(c.attributes().get_float("bound", 0) >= 0, "ATTRIBUTE_OUT_OF_RANGE", "bound",
                  "expected 0 or more");
    if (!check.ok()) return check.error();
    return std::vector<TensorType>{c.input(0)};
  }

  Cost cost(const Graph& graph, const Node& node) const override {
    Cost cost = Op::cost(graph, node);
    cost.flops = 3 * graph.tensor(node.inputs[0]).type.shape.elements();
    return cost;
  }
  std::optional<std::vector<Spread>> spread(const std::vector<Spread>& inputs,
                                            size_t) const override {
    const bool is_scale_own = inputs.size() < 2 || inputs[1] == Spread::kOwn;
    const bool is_gradient = inputs[0] == Spread::kOwn || inputs[0] == Spread::kClasses ||
                             inputs[0] == Spread::kElements;
    if (!is_scale_own || !is_gradient) return std::nullopt;
    return std::vector{inputs[0]};
  }
  std::vector<std::pair<int64_t, int64_t>> may_alias(const Node&) const override {
    return {{0, 0}};
  }
};

}  // namespace

const Op* clip_gradient_op() {
  static const ClipGradient op;
  return &op;
}

}  // namespace trainyard
