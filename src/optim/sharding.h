// src/optim/sharding.h: each of several devices ("ranks") keeps a part of the optimizer's state and
// updates that part of every parameter (ZeRO stage 1: Rajbhandari et al., "ZeRO: Memory
// Optimizations Toward Training Trillion Parameter Models", 2020); or keeps that part of the
// parameters alone (stage 3).
//
//   gradients ── ReduceScatter ── shards of their mean ── clipping ── update of this rank's shard
//   of each parameter ── AllGather ── parameters
//
// Bucket by bucket, as src/optim/all_reduce.h has it. With parameters sharded there is no gathering
// at the end: src/passes/gather_parameters.h gathers them where they are read.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "src/graph/graph.h"
#include "src/optim/all_reduce.h"

namespace trainyard {

/// What each of several devices holds a part of: one or several of these. A spec lists them in
/// resources.shard.
enum class Shard : uint8_t {
  kNone = 0,
  kOptimizer = 1,  // the optimizer's state; beside kHead that of the other weights
  kHead = 2,       // the head's weights, and the state of these (src/parallel/split_head.h)
  // All parameters, their gradients and the optimizer's state; beside kHead those of the others.
  // kOptimizer beside it says nothing more, and recipes leave it out (canonical()).
  kParameters = 4,
  kMlp = 8,  // those of pairs of dense layers (src/parallel/split_mlp.h)
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
/// Layers are split, which ranks of one node do.
constexpr bool splits_layers(Shard shard) { return splits_head(shard) || splits_mlp(shard); }
constexpr bool shards_parameters(Shard shard) { return has(shard, Shard::kParameters); }
/// The one way to write what `shard` means.
constexpr Shard canonical(Shard shard) {
  const bool says_twice = shards_parameters(shard) && shards_optimizer(shard);
  return says_twice ? static_cast<Shard>(static_cast<uint8_t>(shard) &
                                         ~static_cast<uint8_t>(Shard::kOptimizer))
                    : shard;
}
/// Every one that is a single part, in the order of names.
std::vector<Shard> shard_parts(Shard shard);
/// Every set of parts but the empty one, as it is canonical: without parameters first, for these
/// are the dearest; few parts before many; else in the order of names.
std::vector<Shard> shard_sets();
/// As a spec has it: "none", "head", "[optimizer, head]".
std::string name_of(Shard shard);

/// Who updates: one of several ranks, each of which updates everything, or its shard of it.
struct Updater {
  int64_t rank = 0;
  int64_t ranks = 1;
  bool is_sharded = false;  // of several ranks alone; but for what the rank has a part of
};

struct ScatteredGradients {
  std::map<TensorId, TensorId> shards;         // by parameter: of its mean gradient over all ranks
  std::vector<std::vector<TensorId>> buckets;  // parameters whose gradients were exchanged together
};
/// Appends the nodes that give each rank its shards of the mean of `gradients`, by parameter.
ScatteredGradients append_reduce_scatter(Graph& graph,
                                         const std::map<TensorId, TensorId>& gradients,
                                         int64_t ranks, const BucketSpec& spec = {});

/// Gradients whose shards replace them as soon as may be: small buckets, of which few wait.
inline constexpr BucketSpec kSoonGone = {
    .first_bytes = int64_t{1} << 20, .bytes = int64_t{4} << 20, .in_flight = 1};

/// Every parameter that all ranks have alike becomes a shard of itself. Nodes read a whole one
/// instead, which no rank has: src/passes/gather_parameters.h gathers it. By whole one, its shard.
std::map<TensorId, TensorId> shard_parameters(Graph& graph, int64_t ranks);

/// Appends, behind the updates, the nodes that give all ranks the parameters whole. The exchange of
/// a bucket begins when all of its parameters are updated.
void append_all_gather(Graph& graph, const std::vector<std::vector<TensorId>>& buckets,
                       int64_t ranks);

}  // namespace trainyard
