#include "src/graph/op.h"

#include <algorithm>

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

std::optional<std::vector<Placement>> Op::place(const std::vector<Placement>& inputs,
                                                size_t outputs) const {
  const bool are_own = std::ranges::all_of(inputs, [](Placement p) { return p == Placement::kOwn; });
  if (!are_own) return std::nullopt;
  return std::vector(outputs, Placement::kOwn);
}

Result<std::vector<Placement>> place_outputs(const Graph& graph, const Op& op,
                                             const std::vector<TensorId>& inputs, size_t outputs) {
  std::vector<Placement> placements;
  for (const TensorId id : inputs) {
    placements.push_back(id == kNoTensor ? Placement::kOwn : graph.tensor(id).placement);
  }
  if (auto placed = op.place(placements, outputs)) return *std::move(placed);
  std::string names;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (placements[i] == Placement::kOwn) continue;
    names += (names.empty() ? "" : ", ") + graph.tensor(inputs[i]).name + " (" +
             std::string(name_of(placements[i])) + ")";
  }
  return make_error(ErrorCode::kInvalidArgument, "PLACEMENT_MISMATCH",
                    std::string(op.type()) + " does not take tensors as they are placed over the " +
                        "ranks: " + (names.empty() ? "all are own" : names));
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
