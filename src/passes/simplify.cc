#include "src/passes/simplify.h"

#include <algorithm>
#include <map>
#include <optional>

#include "src/graph/op.h"
#include "src/ops/constant_of_shape.h"

namespace trainyard {
namespace {

/// Returns `value` rounded to the tensor's type.
double rounded(DType dtype, double value) {
  return dtype == DType::kF32 ? static_cast<double>(static_cast<float>(value)) : value;
}

/// Returns the value of all elements of the node's output, if all elements of input i are
/// values[i]; nothing for an op that is not known here.
std::optional<double> constant_result(const Node& node, const std::vector<double>& values) {
  const std::string_view op = node.op->type();
  if (op == "Add") return values[0] + values[1];
  if (op == "Relu") return values[0] < 0 ? 0 : values[0];
  if (op == "Reshape" || op == "Flatten" || op == "Transpose" || op == "Reorder") return values[0];
  return std::nullopt;
}

}  // namespace

void fold_constants(Graph& graph) {
  std::vector<Node> nodes = graph.nodes();
  std::map<TensorId, double> known;
  bool changed = false;
  for (Node& node : nodes) {
    if (node.outputs.size() != 1 || node.outputs[0] == kNoTensor) continue;
    const TensorType& type = graph.tensor(node.outputs[0]).type;
    if (!is_float(type.dtype)) continue;
    if (node.op == constant_of_shape_op()) {
      known[node.outputs[0]] = rounded(type.dtype, node.attributes.get_float("value", 0));
      continue;
    }
    std::vector<double> values;
    for (const TensorId id : node.inputs) {
      if (const auto it = known.find(id); it != known.end()) values.push_back(it->second);
    }
    if (values.empty() || values.size() != node.inputs.size()) continue;
    const std::optional<double> value = constant_result(node, values);
    if (!value) continue;
    known[node.outputs[0]] = rounded(type.dtype, *value);
    node.op = constant_of_shape_op();
    node.inputs.clear();
    node.attributes = {{"shape", type.shape.dims()},
                       {"value", known[node.outputs[0]]},
                       {"dtype", std::string(name_of(type.dtype))}};
    changed = true;
  }
  if (changed) graph.rewrite(std::move(nodes));
}

void remove_dead_code(Graph& graph) {
  std::vector<bool> needed(graph.tensors().size());
  for (const TensorId id : graph.outputs()) needed[static_cast<size_t>(id)] = true;
  std::vector<Node> kept;
  for (auto node = graph.nodes().rbegin(); node != graph.nodes().rend(); ++node) {
    const bool updates = std::ranges::any_of(node->op->mutated_inputs(*node), [&](int64_t i) {
      return i < static_cast<int64_t>(node->inputs.size()) &&
             node->inputs[static_cast<size_t>(i)] != kNoTensor;
    });
    const bool is_read = std::ranges::any_of(node->outputs, [&](TensorId id) {
      return id != kNoTensor && needed[static_cast<size_t>(id)];
    });
    if (!is_read && !updates) continue;
    for (const TensorId id : node->inputs) {
      if (id != kNoTensor) needed[static_cast<size_t>(id)] = true;
    }
    kept.push_back(*node);
  }
  if (kept.empty() || kept.size() == graph.nodes().size()) return;
  std::ranges::reverse(kept);
  graph.rewrite(std::move(kept));
}

}  // namespace trainyard
