#include "src/ops/gradient_norm.h"

#include <algorithm>

#include "src/ops/shape_helpers.h"

namespace trainyard {
namespace {

class GradientNorm final : public Op {
 public:
  std::string_view type() const override { return "GradientNorm"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    // OpChecks names inputs, of which there may be any number here: the first stands for all.
    for (const auto& [name, value] : c.attributes().items()) {
      if (name != "max_norm" && name != "scaled") {
        return field_error("ATTRIBUTE_UNKNOWN", name, "no such attribute");
      }
    }
    const int64_t scaled = c.attributes().get_int("scaled", 0) != 0 ? 1 : 0;
    if (c.input_count() <= scaled || !c.has_input(0) || !is_float(c.input(0).dtype)) {
      return field_error("INPUT_COUNT", "gradients", "expected at least one, of floats");
    }
    for (int64_t i = 1; i < c.input_count(); ++i) {
      if (!c.has_input(i) || c.input(i).dtype != c.input(0).dtype) {
        return field_error("DTYPE_MISMATCH", "gradients",
                           std::to_string(i) + " has another type than the first");
      }
    }
    const TensorType one{{1}, c.input(0).dtype};
    if (scaled == 1 && c.input(c.input_count() - 1).shape != one.shape) {
      return field_error("SHAPE_MISMATCH", "loss_scale", "expected one number");
    }
    return std::vector<TensorType>{one, one};
  }

  Cost cost(const Graph& graph, const Node& node) const override {
    Cost cost = Op::cost(graph, node);
    for (const TensorId id : node.inputs) {
      cost.flops += 2 * graph.tensor(id).type.shape.elements();
    }
    return cost;
  }
};

}  // namespace

const Op* gradient_norm_op() {
  static const GradientNorm op;
  return &op;
}

}  // namespace trainyard
