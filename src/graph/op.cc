#include "src/graph/op.h"

namespace trainyard {

bool InferContext::has_input(int64_t i) const {
  return i < input_count() && inputs_[static_cast<size_t>(i)] != kNoTensor;
}

const TensorType& InferContext::input(int64_t i) const {
  TRAINYARD_CHECK(has_input(i), "input " + std::to_string(i) + " is left out");
  return graph_.tensor(inputs_[static_cast<size_t>(i)]).type;
}

void Op::differentiate(GradientContext& c) const {
  TRAINYARD_CHECK(false,
                  c.node().name + ": " + std::string(type()) + " has no gradient (it is one)");
}

Cost Op::cost(const Graph& graph, const Node& node) const {
  Cost cost;
  for (const TensorId id : node.inputs) {
    if (id != kNoTensor) cost.bytes += graph.tensor(id).stored_bytes();
  }
  for (const TensorId id : node.outputs) {
    if (id != kNoTensor) cost.bytes += graph.tensor(id).stored_bytes();
  }
  for (const int64_t i : mutated_inputs(node)) {  // written as well as read
    const TensorId id = node.inputs.at(static_cast<size_t>(i));
    if (id != kNoTensor) cost.bytes += graph.tensor(id).stored_bytes();
  }
  return cost;
}

}  // namespace trainyard
