// src/runtime/common/exchange_kernel.h: what the kernels of an exchange share, whatever device it
// is on.
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
/// Of an op that is_exchange() (src/runtime/communicator.h).
inline Exchange exchange_of(std::string_view op_type) {
  return op_type.starts_with("AllReduce")       ? Exchange::kAllReduce
         : op_type.starts_with("ReduceScatter") ? Exchange::kReduceScatter
         : op_type == "GatherRows"              ? Exchange::kGatherRows
         : op_type == "ScatterRows"             ? Exchange::kScatterRows
                                                : Exchange::kAllGather;  // GatherShards too
}

/// A tensor of an exchange. `data` is reduced in place; or read, and this rank's shard of the mean
/// is written to `shard`; or has this rank's shard, and gets those of all others: of these the bits
/// are moved, of elements of any size. Of rows `data` is read, and all ranks' or this rank's are
/// written to `rows`.
struct ExchangePart {
  void* data = nullptr;  // set by each run, as are ...
  int64_t count = 0;
  DType dtype = DType::kF32;  // or F64; of rows that are gathered any
  bool is_half = false;       // what is gathered is stored in 16 bits
  void* shard = nullptr;      // ... this: by what scatters alone, ...
  void* rows = nullptr;       // ... and this
  double factor = 1;          // of rows: that they are multiplied by
  // Where a tensor is gathered from a shard that lies elsewhere: this rank's elements of it.
  kernels::ShardRange own = {};
  int64_t element_bytes() const { return is_half ? 2 : static_cast<int64_t>(size_of(dtype)); }
};

/// Of a node that starts an exchange: by what it makes whole.
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
        part.data = a.mutated.empty() ? a.outputs[i] : a.mutated[i];
        if (part.own.count > 0) {
          copy(static_cast<std::byte*>(part.data) + part.own.first * part.element_bytes(),
               a.inputs[i], static_cast<size_t>(part.own.count * part.element_bytes()));
        }
        break;
      case Exchange::kGatherRows:
      case Exchange::kScatterRows:
        part.data = const_cast<void*>(a.inputs[i]);  // nobody writes it
        part.rows = a.outputs[i];
        break;
    }
  }
}

/// What a node that ends an exchange gives: its outputs are its inputs from `first` on, which the
/// plan may have left elsewhere.
struct ExchangeResults {
  size_t first = 1;  // behind what it only waits for
  std::vector<int64_t> bytes;

  /// Calls copy(to, from, bytes) for those.
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
