#include "src/planning/frozen_storage.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/alignment.h"
#include "src/base/sha256.h"
#include "src/planning/weight_match.h"

namespace trainyard {
namespace {

constexpr int64_t kHalfBytes = 2;
constexpr size_t kMappedPartsDigits = 16;
static_assert(kMappedAlignment % kHostAlignment == 0, "kernels read tensors in the file");

bool may_be_half(const TensorInfo& t) {
  return t.role == Role::kParameter && t.type.dtype == DType::kF32 && t.spread == Spread::kOwn;
}

/// How a frozen parameter is stored, and where in the file its bytes are, if they are there as
/// kernels read them.
struct FrozenForm {
  Storage storage = Storage::kAsTyped;
  int64_t mapped_at = TensorInfo::kNotMapped;
};

/// Returns the place of a weight's bytes in the file: those of one tensor, in the same order. Begin
/// and end are aligned, so that kernels may read whole vectors.
int64_t place_in_file(const TakenWeight& weight, const std::vector<FileTensor>& file) {
  const std::vector<size_t>& from = weight.source.tensors;
  const Arrangement arrangement = weight.source.arrangement;
  const int64_t offset = file[from.front()].offset;
  const int64_t bytes = weight.shape.elements() * kHalfBytes;
  const bool same_order = from.size() == 1 && arrangement != Arrangement::kTransposed;
  const bool aligned =
      offset >= 0 && offset % kMappedAlignment == 0 && bytes % kMappedAlignment == 0;
  return same_order && aligned ? offset : TensorInfo::kNotMapped;
}

std::map<TensorId, FrozenForm> as_in_file(const InitialWeights& weights, const Graph& graph,
                                          const std::set<TensorId>& frozen) {
  std::map<TensorId, FrozenForm> found;
  if (weights.source.empty() || weights.tensors == nullptr) return found;
  const std::vector<FileTensor>& file = *weights.tensors;
  const auto is_half = [](const FileTensor& t) {
    return half_storage(t.dtype) != Storage::kAsTyped;
  };
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
    const Storage storage = storage_in_file(weight, file);
    if (storage != Storage::kAsTyped && frozen.contains(id) && may_be_half(graph.tensor(id))) {
      found[id] = {storage, place_in_file(weight, file)};
    }
  }
  return found;
}

std::map<TensorId, FrozenForm> find_frozen_forms(const Recipe& recipe, const Graph& graph,
                                                 const std::set<TensorId>& frozen) {
  std::map<TensorId, FrozenForm> in_file = as_in_file(recipe.initial_weights, graph, frozen);
  if (recipe.frozen_storage == kFrozenAsInFile) return in_file;
  std::map<TensorId, FrozenForm> found;
  const Storage storage = recipe.frozen_storage == "bf16"   ? Storage::kBf16
                          : recipe.frozen_storage == "fp16" ? Storage::kF16
                                                            : Storage::kAsTyped;
  if (storage == Storage::kAsTyped) return found;
  for (const TensorId id : frozen) {
    if (!may_be_half(graph.tensor(id))) continue;
    const auto known = in_file.find(id);
    const bool is_as_in_file = known != in_file.end() && known->second.storage == storage;
    found[id] = is_as_in_file ? known->second : FrozenForm{storage};
  }
  return found;
}

}  // namespace

void store_frozen(const Recipe& recipe, const std::set<TensorId>& frozen, Processor processor,
                  Graph& graph) {
  if (processor != Processor::kCpu) return;
  for (const auto& [id, form] : find_frozen_forms(recipe, graph, frozen)) {
    graph.set_storage(id, form.storage);
    if (form.mapped_at != TensorInfo::kNotMapped) graph.set_mapped(id, form.mapped_at);
  }
}

std::string mapped_parts(const Program& program, const std::string& file) {
  std::vector<std::pair<int64_t, int64_t>> parts;
  for (const Placement& place : program.placements) {
    if (place.segment == Segment::kMapped) parts.emplace_back(place.offset_bytes, place.size_bytes);
  }
  if (parts.empty()) return {};
  std::ranges::sort(parts);
  std::string text = file + "\n";
  for (const auto& [offset, size] : parts) {
    text += std::to_string(offset) + "+" + std::to_string(size) + "/";
  }
  return sha256_hex(text).substr(0, kMappedPartsDigits);
}

}  // namespace trainyard
