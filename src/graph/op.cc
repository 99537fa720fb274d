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

std::optional<std::vector<Spread>> Op::spread(const std::vector<Spread>& inputs,
                                              size_t outputs) const {
  const bool are_own = std::ranges::all_of(inputs, [](Spread p) { return p == Spread::kOwn; });
  if (!are_own) return std::nullopt;
  return std::vector(outputs, Spread::kOwn);
}

Result<std::vector<Spread>> spread_outputs(const Graph& graph, const Op& op,
                                           const std::vector<TensorId>& inputs, size_t outputs) {
  std::vector<Spread> spreads;
  for (const TensorId id : inputs) {
    spreads.push_back(id == kNoTensor ? Spread::kOwn : graph.tensor(id).spread);
  }
  if (auto given = op.spread(spreads, outputs)) return *std::move(given);
  std::string names;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (spreads[i] == Spread::kOwn) continue;
    names += (names.empty() ? "" : ", ") + graph.tensor(inputs[i]).name + " (" +
             std::string(name_of(spreads[i])) + ")";
  }
  return make_error(ErrorCode::kInvalidArgument, "SHARDING_UNSUPPORTED",
                    std::string(op.type()) + " does not support this sharding of its inputs: " +
                        (names.empty() ? "none is sharded" : names));
}

Cost Op::cost(const Graph& graph, const Node& node) const {
  Cost cost;
  for (const TensorId id : node.inputs) {
    if (id != kNoTensor) cost.bytes += graph.tensor(id).stored_bytes();
  }
  for (const TensorId id : node.outputs) {
    if (id != kNoTensor) cost.bytes += graph.tensor(id).stored_bytes();
  }
  for (const int64_t i : mutated_inputs(node)) {  // mutated inputs are also written
    const TensorId id = node.inputs.at(static_cast<size_t>(i));
    if (id != kNoTensor) cost.bytes += graph.tensor(id).stored_bytes();
  }
  return cost;
}

std::optional<size_t> updated_rows(const Graph& graph, const Node& node) {
  if (node.inputs.empty()) return std::nullopt;
  const TensorId last = node.inputs.back();
  if (last == kNoTensor || graph.tensor(last).type.dtype != DType::kI32) return std::nullopt;
  return node.inputs.size() - 1;
}

std::optional<size_t> written_copy(const Graph& graph, const Node& node) {
  if (node.inputs.empty() || node.inputs.back() == kNoTensor) return std::nullopt;
  if (graph.tensor(node.inputs.back()).role != Role::kCopy || node.phase != Phase::kUpdate) {
    return std::nullopt;
  }
  return node.inputs.size() - 1;
}

}  // namespace trainyard
