#include "src/planning/frozen_storage.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "src/planning/weight_match.h"

namespace trainyard {
namespace {

bool may_be_half(const TensorInfo& t) {
  return t.role == Role::kParameter && t.type.dtype == DType::kF32 && t.spread == Spread::kOwn;
}

Storage storage_of(std::string_view dtype) {
  return dtype == "BF16" ? Storage::kBf16 : dtype == "F16" ? Storage::kF16 : Storage::kAsTyped;
}

/// Returns the 16-bit type of all of the file's tensors from which a weight begins.
Storage storage_of(const TakenWeight& weight, const std::vector<FileTensor>& file) {
  const std::vector<size_t>& from = weight.source.tensors;
  const std::string& first = file[from.front()].dtype;
  const bool alike = std::ranges::all_of(from, [&](size_t i) { return file[i].dtype == first; });
  return alike ? storage_of(first) : Storage::kAsTyped;
}

std::map<TensorId, Storage> as_in_file(const InitialWeights& weights, const Graph& graph,
                                       const std::set<TensorId>& frozen) {
  std::map<TensorId, Storage> found;
  if (weights.source.empty() || weights.tensors == nullptr) return found;
  const std::vector<FileTensor>& file = *weights.tensors;
  const auto is_half = [](const FileTensor& t) { return storage_of(t.dtype) != Storage::kAsTyped; };
  if (std::ranges::none_of(file, is_half)) return found;
  std::vector<TensorInfo> model;
  for (const TensorInfo& t : graph.tensors()) {
    if (t.role == Role::kParameter || t.role == Role::kState) model.push_back(t);
  }
  // The check of initial weights (src/planning/weight_match.h) refuses a file that does not fit.
  const Result<WeightMatch> match = match_weights(weights, file, model);
  if (!match.ok()) return found;
  for (const TakenWeight& weight : match->taken) {
    const TensorId id = graph.find_tensor(weight.name).value();
    const Storage storage = storage_of(weight, file);
    if (storage != Storage::kAsTyped && frozen.contains(id) && may_be_half(graph.tensor(id))) {
      found[id] = storage;
    }
  }
  return found;
}

std::map<TensorId, Storage> find_frozen_storage(const Recipe& recipe, const Graph& graph,
                                                const std::set<TensorId>& frozen) {
  if (recipe.frozen_storage == kFrozenAsInFile) {
    return as_in_file(recipe.initial_weights, graph, frozen);
  }
  std::map<TensorId, Storage> found;
  const Storage storage = recipe.frozen_storage == "bf16"   ? Storage::kBf16
                          : recipe.frozen_storage == "fp16" ? Storage::kF16
                                                            : Storage::kAsTyped;
  if (storage == Storage::kAsTyped) return found;
  for (const TensorId id : frozen) {
    if (may_be_half(graph.tensor(id))) found[id] = storage;
  }
  return found;
}

}  // namespace

void store_frozen(const Recipe& recipe, const std::set<TensorId>& frozen, Processor processor,
                  Graph& graph) {
  if (processor != Processor::kCpu) return;
  for (const auto& [id, storage] : find_frozen_storage(recipe, graph, frozen)) {
    graph.set_storage(id, storage);
  }
}

}  // namespace trainyard
