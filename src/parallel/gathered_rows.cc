#include "src/parallel/gathered_rows.h"

#include "src/autodiff/differentiate.h"

namespace trainyard {

int64_t rows_exchange(int64_t index) { return (int64_t{1} << 28) + index; }

TensorId micro_step_input(Graph& graph) {
  constexpr const char* kName = "micro_step";
  if (const auto found = graph.find_tensor(kName)) return *found;
  return graph.add_tensor(
      {kName, {{1}, DType::kI64}, Role::kInput, Layout::kRowMajor, kNoNode, {}});
}

KeptRows add_kept_rows(Graph& graph, const std::string& name, int64_t size, int64_t micro_batches) {
  if (micro_batches == 1) return {};
  const TensorId kept = graph.add_tensor(
      {name, {{size}, DType::kI32}, Role::kAccumulator, Layout::kRowMajor, kNoNode, {}});
  return {kept, micro_step_input(graph)};
}

std::map<TensorId, TensorId> differentiate_gathered(Graph& graph, TensorId loss,
                                                    std::set<TensorId> frozen, TensorId loss_scale,
                                                    const GatheredTables& tables,
                                                    std::map<TensorId, ParameterRule>& rules) {
  std::set<TensorId> leaves;
  for (const auto& [parameter, table] : tables) {
    if (frozen.insert(parameter).second) leaves.insert(table.gathered);
  }
  std::map<TensorId, TensorId> gradients = differentiate(graph, loss, frozen, loss_scale, leaves);
  for (const auto& [parameter, table] : tables) {
    const auto found = gradients.find(table.gathered);
    if (found == gradients.end()) continue;
    rules[parameter].rows = table.rows;
    gradients[parameter] = found->second;
    gradients.erase(table.gathered);
  }
  return gradients;
}

}  // namespace trainyard
