// src/optim/sharding.h: each of several devices ("ranks") stores a part of the optimizer's state
// and updates the same part of every parameter (ZeRO stage 1: Rajbhandari et al., "ZeRO: Memory
// Optimizations Toward Training Trillion Parameter Models", 2020), or also stores only that part of
// the parameters (stage 3).
//
//   gradients ── ReduceScatter ── shards of their mean ── clipping ── update of this rank's shard
//   of each parameter ── AllGather ── parameters
//
// The exchanges work on buckets, as in src/optim/all_reduce.h. If parameters are sharded, nothing
// is gathered at the end: src/passes/gather_parameters.h gathers parameters before they are read.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "src/graph/graph.h"
#include "src/optim/all_reduce.h"

namespace trainyard {

/// The tensors that are sharded over the devices: a combination of these flags. A spec lists them
/// in resources.shard.
enum class Shard : uint8_t {
  kNone = 0,
  kOptimizer = 1,  // the optimizer's state; with kHead, that of the other weights
  kHead = 2,       // the head's weights and their optimizer state (src/parallel/split_head.h)
  // All parameters, their gradients and the optimizer's state; with kHead, those outside the head.
  // Adding kOptimizer changes nothing, so recipes leave it out (canonical()).
  kParameters = 4,
  kMlp = 8,  // weights and state of pairs of dense layers (src/parallel/split_mlp.h)
};
constexpr Shard operator|(Shard a, Shard b) {
  return static_cast<Shard>(static_cast<uint8_t>(a) | static_cast<uint8_t>(b));
}
constexpr bool has(Shard shard, Shard part) {
  return (static_cast<uint8_t>(shard) & static_cast<uint8_t>(part)) != 0;
}
constexpr bool shards_optimizer(Shard shard) { return has(shard, Shard::kOptimizer); }
constexpr bool splits_head(Shard shard) { return has(shard, Shard::kHead); }
constexpr bool splits_mlp(Shard shard) { return has(shard, Shard::kMlp); }
/// Returns whether layers are split, which needs ranks of one node.
constexpr bool splits_layers(Shard shard) { return splits_head(shard) || splits_mlp(shard); }
constexpr bool shards_parameters(Shard shard) { return has(shard, Shard::kParameters); }
/// Returns the canonical one of the equivalent ways to write `shard`.
constexpr Shard canonical(Shard shard) {
  const bool is_redundant = shards_parameters(shard) && shards_optimizer(shard);
  return is_redundant ? static_cast<Shard>(static_cast<uint8_t>(shard) &
                                           ~static_cast<uint8_t>(Shard::kOptimizer))
                      : shard;
}
/// Returns the single flags of which `shard` consists, in the order of name_of().
std::vector<Shard> shard_parts(Shard shard);
/// Returns all canonical combinations but kNone. Those without kParameters come first, because
/// sharding parameters is the slowest; within both groups, smaller combinations come first.
std::vector<Shard> shard_sets();
/// Returns the text of a spec: "none", "head", "[optimizer, head]".
std::string name_of(Shard shard);

/// The rank that updates. It updates all parameters, or its shard of each.
struct Updater {
  int64_t rank = 0;
  int64_t ranks = 1;
  bool is_sharded = false;  // each rank updates a shard of the parameters that all ranks have;
                            // needs several ranks
};

struct ScatteredGradients {
  std::map<TensorId, TensorId> shards;  // by parameter: this rank's shard of the mean gradient
  std::vector<std::vector<TensorId>> buckets;  // by exchange: the parameters of its gradients
};
/// Appends the nodes that give each rank its shards of the mean of `gradients` (by parameter).
ScatteredGradients append_reduce_scatter(Graph& graph,
                                         const std::map<TensorId, TensorId>& gradients,
                                         int64_t ranks, const BucketSpec& spec = {});

/// Small buckets of which few wait, for gradients that are to be replaced by their shards as soon
/// as possible.
inline constexpr BucketSpec kFreeEarly = {
    .first_bytes = int64_t{1} << 20, .bytes = int64_t{4} << 20, .in_flight = 1};

/// Turns every parameter that all ranks have into a shard of itself. Nodes read a new tensor,
/// "<name>/whole", in its place, which src/passes/gather_parameters.h fills by gathering the
/// shards. Returns the shard by whole tensor.
std::map<TensorId, TensorId> shard_parameters(Graph& graph, int64_t ranks);

/// Appends, after the updates, the nodes that gather the whole parameters on all ranks. The
/// exchange of a bucket begins once all of its parameters are updated.
void append_all_gather(Graph& graph, const std::vector<std::vector<TensorId>>& buckets,
                       int64_t ranks);

}  // namespace trainyard
