// src/runtime/common/exchange_kernel.h: code shared by the exchange kernels of all devices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "kernels/shard.h"
#include "src/graph/op.h"
#include "src/ops/row_exchange.h"
#include "src/runtime/backend.h"

namespace trainyard {

enum class Exchange : uint8_t { kAllReduce, kReduceScatter, kAllGather, kGatherRows, kScatterRows };
/// Returns the kind of an op for which is_exchange() is true (src/runtime/communicator.h).
inline Exchange exchange_of(std::string_view op_type) {
  return op_type.starts_with("AllReduce")       ? Exchange::kAllReduce
         : op_type.starts_with("ReduceScatter") ? Exchange::kReduceScatter
         : op_type == "GatherRows"              ? Exchange::kGatherRows
         : op_type == "ScatterRows"             ? Exchange::kScatterRows
                                                : Exchange::kAllGather;  // also for GatherShards
}

/// One tensor of an exchange. All-reduce: `data` is reduced in place. Reduce-scatter: `data` is
/// read, and this rank's shard of the mean is written to `shard`. All-gather: `data` contains this
/// rank's shard and receives those of the other ranks, as bytes of elements of any size. Rows:
/// `data` is read, and the rows of all ranks (gather) or of this rank (scatter) are written to
/// `rows`.
struct ExchangePart {
  void* data = nullptr;  // set at each run, like `shard` and `rows`
  int64_t count = 0;
  DType dtype = DType::kF32;  // F32 or F64; any type for gathered rows
  bool is_half = false;       // the gathered tensor is stored in 16 bits
  void* shard = nullptr;      // only for reduce-scatter
  void* rows = nullptr;       // only for exchanges of rows
  double factor = 1;          // factor by which rows are multiplied
  // If a tensor is gathered from a shard in other memory: the range of this rank's elements in the
  // tensor.
  kernels::ShardRange own = {};
  int64_t element_bytes() const { return is_half ? 2 : static_cast<int64_t>(size_of(dtype)); }
};

/// Returns the parts of a node that starts an exchange; their shapes are those of the whole
/// tensors.
inline std::vector<ExchangePart> exchange_parts(const Graph& graph, const Node& node) {
  std::vector<ExchangePart> parts;
  const bool is_gathered = node.op->type() == "GatherShardsStart";
  for (const TensorId id : is_gathered ? node.outputs : node.inputs) {
    const TensorInfo& t = graph.tensor(id);
    const int64_t count = t.type.shape.elements();
    ExchangePart part{nullptr, count, t.type.dtype, is_gathered && t.is_half()};
    if (is_gathered) {
      part.own = kernels::shard_range(count, node.attributes.get_int("rank", 0),
                                      node.attributes.get_int("ranks", 1));
    }
    part.factor = row_factor(node.op->type(), node.attributes);
    parts.push_back(part);
  }
  return parts;
}

/// Sets the parts' pointers for a run. Calls copy(to, from, bytes) if data must first be copied to
/// where the exchange works in place.
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
        part.data = const_cast<void*>(a.inputs[i]);  // it is only read
        part.shard = a.outputs[i];
        break;
      case Exchange::kAllGather:
        part.data = a.mutated.empty() ? a.outputs[i] : a.mutated[i];
        if (part.own.count > 0) {
          copy(static_cast<std::byte*>(part.data) + part.own.first * part.element_bytes(),
               a.inputs[i], static_cast<size_t>(part.own.count * part.element_bytes()));
        }
        break;
      case Exchange::kGatherRows:
      case Exchange::kScatterRows:
        part.data = const_cast<void*>(a.inputs[i]);  // it is only read
        part.rows = a.outputs[i];
        break;
    }
  }
}

/// The outputs of a node that ends an exchange: its inputs from `first` on, which the plan may have
/// placed elsewhere.
struct ExchangeResults {
  size_t first = 1;  // the inputs before it are only waited for
  std::vector<int64_t> bytes;

  /// Calls copy(to, from, bytes) for each output that is not already in place.
  template <typename Copy>
  void take(const KernelArgs& a, Copy copy) const {
    for (size_t i = 0; i < a.outputs.size(); ++i) {
      const void* from = a.inputs[first + i];
      if (from != a.outputs[i]) copy(a.outputs[i], from, static_cast<size_t>(bytes[i]));
    }
  }
};
inline ExchangeResults exchange_results(const Graph& graph, const Node& node) {
  ExchangeResults results;
  if (node.op->type() == "GatherShardsDone") results.first = 0;
  for (const TensorId id : node.outputs) results.bytes.push_back(graph.tensor(id).stored_bytes());
  return results;
}

}  // namespace trainyard
