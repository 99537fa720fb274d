// src/runtime/common/exchange_kernel.h: what the kernels of an exchange share, whatever device it
// is on.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "src/ops/row_exchange.h"
#include "src/runtime/backend.h"

namespace trainyard {

enum class Exchange : uint8_t { kAllReduce, kReduceScatter, kAllGather, kGatherRows, kScatterRows };
/// Of an op that is_exchange() (src/runtime/communicator.h).
inline Exchange exchange_of(std::string_view op_type) {
  return op_type.starts_with("AllReduce")       ? Exchange::kAllReduce
         : op_type.starts_with("ReduceScatter") ? Exchange::kReduceScatter
         : op_type == "GatherRows"              ? Exchange::kGatherRows
         : op_type == "ScatterRows"             ? Exchange::kScatterRows
                                                : Exchange::kAllGather;
}

/// A tensor of an exchange. `data` is reduced in place; or read, and this rank's shard of the mean
/// is written to `shard`; or has this rank's shard, and gets those of all others. Of rows `data` is
/// read, and all ranks' or this rank's are written to `rows`.
struct ExchangePart {
  void* data = nullptr;  // set by each run, as are ...
  int64_t count = 0;
  DType dtype = DType::kF32;  // or F64; of rows that are gathered any
  void* shard = nullptr;      // ... this: by what scatters alone, ...
  void* rows = nullptr;       // ... and this
  double factor = 1;          // of rows: that they are multiplied by
};

/// Of a node that starts an exchange: by what it makes whole.
inline std::vector<ExchangePart> exchange_parts(const Graph& graph, const Node& node) {
  std::vector<ExchangePart> parts;
  for (const TensorId id : node.inputs) {
    const TensorType& type = graph.tensor(id).type;
    parts.push_back({nullptr, type.shape.elements(), type.dtype});
    parts.back().factor = row_factor(node.op->type(), node.attributes);
  }
  return parts;
}

/// Points the parts to a run's tensors; calls copy(to, from, bytes) where what is reduced does not
/// lie in its place already.
template <typename Copy>
void bind_parts(std::vector<ExchangePart>& parts, Exchange exchange, const KernelArgs& a,
                Copy copy) {
  for (size_t i = 0; i < parts.size(); ++i) {
    ExchangePart& part = parts[i];
    switch (exchange) {
      case Exchange::kAllReduce:
        part.data = a.outputs[i];
        if (a.inputs[i] != part.data) {
          copy(part.data, a.inputs[i], static_cast<size_t>(part.count) * size_of(part.dtype));
        }
        break;
      case Exchange::kReduceScatter:
        part.data = const_cast<void*>(a.inputs[i]);  // nobody writes it
        part.shard = a.outputs[i];
        break;
      case Exchange::kAllGather:
        part.data = a.mutated[i];
        break;
      case Exchange::kGatherRows:
      case Exchange::kScatterRows:
        part.data = const_cast<void*>(a.inputs[i]);  // nobody writes it
        part.rows = a.outputs[i];
        break;
    }
  }
}

/// Of a node that ends one: its outputs are inputs 1, 2, ..., which the plan may have left
/// elsewhere. calls copy(to, from, bytes) then.
template <typename Copy>
void take_results(const std::vector<int64_t>& bytes, const KernelArgs& a, Copy copy) {
  for (size_t i = 0; i < a.outputs.size(); ++i) {
    const void* from = a.inputs[i + 1];
    if (from != a.outputs[i]) copy(a.outputs[i], from, static_cast<size_t>(bytes[i]));
  }
}
inline std::vector<int64_t> result_bytes(const Graph& graph, const Node& node) {
  std::vector<int64_t> bytes;
  for (const TensorId id : node.outputs) bytes.push_back(graph.tensor(id).type.bytes());
  return bytes;
}

}  // namespace trainyard
