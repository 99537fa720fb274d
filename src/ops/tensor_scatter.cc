#include "src/ops/tensor_scatter.h"

#include "src/ops/shape_helpers.h"

namespace trainyard {
namespace {

class TensorScatter final : public Op {
 public:
  std::string_view type() const override { return "TensorScatter"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"cache", "update", "positions"}, 3);
    check.float_type(0).rank(0, 3).not_empty(0).same_dtype(1, 0).rank(1, 3).not_empty(1);
    if (!check.ok()) return check.error();
    const Shape& cache = c.input(0).shape;
    const int64_t length = c.input(1).shape[1];
    check.shape(1, {cache[0], length, cache[2]});
    check.dtype(2, DType::kI32).shape(2, {cache[0], length});
    if (!check.ok()) return check.error();
    return std::vector<TensorType>{};
  }

  Cost cost(const Graph& graph, const Node& node) const override {
    // Only the rows of the update are read and written.
    return {0, 2 * graph.tensor(node.inputs[1]).stored_bytes() +
                   graph.tensor(node.inputs[2]).stored_bytes()};
  }
  std::vector<int64_t> mutated_inputs(const Node&) const override { return {0}; }
};

}  // namespace

const Op* tensor_scatter_op() {
  static const TensorScatter op;
  return &op;
}

}  // namespace trainyard
