// src/ops/shards.h: exchanges over the ranks that train a job together, in which each rank has a
// shard (kernels/shard.h) of a tensor. Each exchange has two nodes, as in src/ops/all_reduce.h, so
// that the nodes between them run during the exchange. Shards are kElements, whole tensors are
// kOwn.
//
// ReduceScatterStart  Inputs g_0 .. g_n-1, F32 or F64. Outputs s_0 .. s_n-1, [c]: a shard of each;
//                     only ReduceScatterDone may read them. Attributes bucket; ranks.
// ReduceScatterDone   Inputs after, optional, as AllReduceDone's; s_0 .. s_n-1; g_0 .. g_n-1, which
//                     the exchange reads until then. Outputs y_0 .. y_n-1, [c]: this rank's shard
//                     of (1/N) sum over the N ranks of g_i, on a host with the same bits as from
//                     AllReduceDone, padded with zeros to c elements. Attributes bucket.
// AllGatherStart      Inputs p_0 .. p_n-1, updated: every rank sends its own shard of p_i to all
//                     others. Attributes bucket; ranks.
// AllGatherDone       Inputs p_0 .. p_n-1 of any number of AllGatherStart nodes, which are updated
//                     when this node ends. Attributes buckets: those of the AllGatherStart nodes.
// GatherShardsStart   Inputs s_0 .. s_n-1, [c]. Outputs w_0 .. w_n-1: the whole tensor of each, in
//                     the storage of the shard; only GatherShardsDone may read them. Attributes
//                     bucket; rank, of ranks; shapes: those of the whole tensors, each as its
//                     number of dimensions followed by the dimensions.
// GatherShardsDone    Inputs w_0 .. w_n-1; s_0 .. s_n-1, which the exchange reads until then.
//                     Outputs the whole tensors. Attributes bucket.
// Attributes          bucket: a number that only the nodes of this exchange have in the program.
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

/// Returns the type [c] of the shards of a tensor of `type` over `ranks` ranks, and the elements of
/// one rank's shard.
TensorType shard_type(const TensorType& type, int64_t ranks);
kernels::ShardRange shard_range(const TensorType& type, int64_t rank, int64_t ranks);
/// Returns the elements of the whole tensor in the shard of `rank`, for shards along axis 0.
kernels::ShardRange shard_range_of(const TensorInfo& shard, int64_t rank);
/// The elements of the whole tensor in one rank's shard along any axis, as `runs` runs of `count`
/// elements. Shards along axis 0 have one run; shards that are columns have one run per row. The
/// rest of a shard is padding with the value 0.
struct ShardElements {
  int64_t runs = 0, count = 0;
  int64_t first = 0, step = 0;  // in the whole tensor: start of the first run, and distance between
                                // the starts of two runs
  int64_t shard_step = 0;       // in the shard: distance between the starts of two runs
  /// Calls take(from, to, count) for each run that is not empty. `from` is its start in the whole
  /// tensor, `to` its start in the shard.
  template <typename F>
  void for_each_run(const F& take) const {
    for (int64_t i = 0; i < runs && count > 0; ++i) take(first + i * step, i * shard_step, count);
  }
};
ShardElements elements_of_shard(const TensorInfo& shard, int64_t rank);
/// Encodes shapes as the attribute `shapes` of GatherShardsStart.
std::vector<int64_t> flat_shapes(const std::vector<Shape>& shapes);

/// An elementwise update of a parameter (its input 0) that updates only a shard has two more
/// attributes: `rank`, of `ranks`. Its gradient and its state are then shards.
inline constexpr const char* kRank = "rank";
inline constexpr const char* kRanks = "ranks";
/// Returns the elements of the parameter that the node updates; if it updates rows, the elements of
/// these rows.
kernels::ShardRange updated_range(const Graph& graph, const Node& node);
/// For infer() of an update: checks that gradient and state fit the parameter. `inputs` are the
/// indices of the gradient and the state, in this order; `rows` is the index of the last input.
/// This input, I32 [R], is optional (updated_rows() in src/graph/op.h). With it the gradient is [R,
/// ...], and only these rows of parameter and state are read and updated; no row may be listed
/// twice, and -1 stands for no row.
void check_updated(OpChecks& check, const InferContext& c, std::span<const int64_t> inputs,
                   int64_t rows);
/// Implements spread() of an update: gradient and state have the parameter's spread, or kElements
/// if the rank has the whole parameter; all other inputs are kOwn. `parts` are the indices of
/// gradient and state.
std::optional<std::vector<Spread>> spread_updated(const std::vector<Spread>& inputs,
                                                  std::span<const int64_t> parts);
/// Implements spread() of an update that cannot work on a shard of a whole tensor: inputs 0 and 1
/// have the same spread.
std::optional<std::vector<Spread>> spread_equally(const std::vector<Spread>& inputs);
/// Implements cost() of an update.
Cost update_cost(const Op& op, const Graph& graph, const Node& node, int64_t flops_per_element);

}  // namespace trainyard
