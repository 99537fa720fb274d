// src/runtime/common/exchange_kernel.h: what the kernels of an exchange share, whatever device it
// is on.
#pragma once

#include <cstdint>
#include <vector>

#include "src/runtime/backend.h"

namespace trainyard {

/// A tensor that an exchange reduces in place.
struct ExchangePart {
  void* data = nullptr;  // set by each run
  int64_t count = 0;
  DType dtype = DType::kF32;  // or F64
};

inline std::vector<ExchangePart> exchange_parts(const Graph& graph, const Node& node) {
  std::vector<ExchangePart> parts;
  for (const TensorId id : node.outputs) {
    const TensorType& type = graph.tensor(id).type;
    parts.push_back({nullptr, type.shape.elements(), type.dtype});
  }
  return parts;
}

/// Points the parts to a run's outputs, and calls copy(to, from, bytes) where an input does not lie
/// there already. The inputs of what `starts` an exchange are its tensors; of what ends one, the
/// first is the exchange.
template <typename Copy>
void bind_parts(std::vector<ExchangePart>& parts, bool starts, const KernelArgs& a, Copy copy) {
  for (size_t i = 0; i < parts.size(); ++i) {
    parts[i].data = a.outputs[i];
    const void* from = a.inputs[starts ? i : i + 1];
    if (from == parts[i].data) continue;
    copy(parts[i].data, from, static_cast<size_t>(parts[i].count) * size_of(parts[i].dtype));
  }
}

}  // namespace trainyard
