// src/ops/shards.h: exchanges over the ranks that train a job together, where each rank has a shard
// (kernels/shard.h) of a tensor. Two nodes each, as src/ops/all_reduce.h, so that what stands
// between them runs while the devices exchange. A shard is kElements, what is whole kOwn.
//
// ReduceScatterStart  Inputs g_0 .. g_n-1, F32 or F64. Outputs s_0 .. s_n-1, [c]: the shard of
//                     each; nobody but ReduceScatterDone may read them. Attributes bucket; ranks.
// ReduceScatterDone   Inputs after, optional, as AllReduceDone's; s_0 .. s_n-1; g_0 .. g_n-1, which
//                     are read until then. Outputs y_0 .. y_n-1, [c]: of (1/N) sum over the N ranks
//                     of g_i this rank's shard, with the bits of AllReduceDone on a host, and zeros
//                     behind it where it is shorter than c. Attributes bucket.
// AllGatherStart      Inputs p_0 .. p_n-1, updated: each rank's shard, on all ranks, becomes that
//                     of its own rank. Attributes bucket; ranks.
// AllGatherDone       Inputs p_0 .. p_n-1 of any number of AllGatherStart, updated by then.
//                     Attributes buckets: theirs.
// GatherShardsStart   Inputs s_0 .. s_n-1, [c]. Outputs w_0 .. w_n-1: of each the whole tensor, in
//                     the shard's storage; nobody but GatherShardsDone may read them. Attributes
//                     bucket; rank, of ranks; shapes: the whole ones, each as its number of
//                     dimensions and then these.
// GatherShardsDone    Inputs w_0 .. w_n-1; s_0 .. s_n-1, which are read until then. Outputs the
//                     whole tensors. Attributes bucket.
// Attributes          bucket: no two exchanges of a program have the same number, the two nodes of
//                     one have.
// Kernels             the backend's communicator (src/runtime/communicator.h)
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <vector>

#include "kernels/shard.h"
#include "src/graph/op.h"

namespace trainyard {

class OpChecks;

const Op* reduce_scatter_start_op();  // "ReduceScatterStart"
const Op* reduce_scatter_done_op();   // "ReduceScatterDone"
const Op* all_gather_start_op();      // "AllGatherStart"
const Op* all_gather_done_op();       // "AllGatherDone"
const Op* gather_shards_start_op();   // "GatherShardsStart"
const Op* gather_shards_done_op();    // "GatherShardsDone"

/// Of a tensor of `type` over that many ranks: [c], and the elements of one rank's shard.
TensorType shard_type(const TensorType& type, int64_t ranks);
kernels::ShardRange shard_range(const TensorType& type, int64_t rank, int64_t ranks);
/// Of the whole tensor, the elements that `rank` holds of one of which each has a shard along axis
/// 0.
kernels::ShardRange held_range(const TensorInfo& shard, int64_t rank);
/// The same along any axis: so many runs of `count` elements, one in each row where the shards are
/// columns. The others of a shard are 0.
struct HeldElements {
  int64_t runs = 0, count = 0;
  int64_t first = 0, step = 0;  // of the whole: where the first begins; from one to the next
  int64_t shard_step = 0;       // of the shard, which the first begins
  /// Calls take(from, to, count) for each run that is not empty: elements of the whole tensor, and
  /// of the shard.
  template <typename F>
  void for_each_run(const F& take) const {
    for (int64_t i = 0; i < runs && count > 0; ++i) take(first + i * step, i * shard_step, count);
  }
};
HeldElements held_elements(const TensorInfo& shard, int64_t rank);
/// The attribute `shapes` of GatherShardsStart.
std::vector<int64_t> flat_shapes(const std::vector<Shape>& shapes);

/// An element-wise update of a parameter, its input 0, has two more attributes where it updates a
/// shard: `rank`, of `ranks`. Its gradient and its state are shards then.
inline constexpr const char* kRank = "rank";
inline constexpr const char* kRanks = "ranks";
/// The elements of its parameter that it updates, or of those rows.
kernels::ShardRange updated_range(const Graph& graph, const Node& node);
/// Its last input, `rows` [R], I32, is optional (updated_rows() in src/graph/op.h): then the
/// gradient is [R, ...], and of parameter and state only these rows are read and updated; no row
/// stands there twice, and -1 is none. For its infer(): `inputs` are gradient and state, in this
/// order, `rows` is the last input.
void check_updated(OpChecks& check, const InferContext& c, std::span<const int64_t> inputs,
                   int64_t rows);
/// For its spread(): gradient and state have one spread. It is the parameter's, or kElements of one
/// that the rank has whole; all else is kOwn.
std::optional<std::vector<Spread>> spread_updated(const std::vector<Spread>& inputs,
                                                  std::span<const int64_t> parts);
/// The same of an update that knows no shards of a whole tensor: inputs 0 and 1 have one spread.
std::optional<std::vector<Spread>> spread_alike(const std::vector<Spread>& inputs);
/// For its cost().
Cost update_cost(const Op& op, const Graph& graph, const Node& node, int64_t flops_per_element);

}  // namespace trainyard
