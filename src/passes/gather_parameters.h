// src/passes/gather_parameters.h: parameters of which each rank holds a shard become whole where
// they are read, and are gone behind that (ZeRO stage 3; docs/decisions/0108).
//
//   shard ── [Cast] ── GatherShardsStart ── GatherShardsDone ── whole ── readers
//
// The forward pass gathers a parameter before its first reader there, the backward pass once more
// before its first one. What is in use between the two, or by the time that the backward pass
// begins, is gathered once. A copy in 16 bits that products read is made of the shard: half as
// much crosses.
//
// Parameters are gathered in groups, in the order of their first readers. A group is started before
// the first reader of the group `ahead` before it, so that at most `ahead` + 1 of them are in
// memory, whatever the model's depth, but for what is read over longer stretches. The plan sees
// both ends of each, so it knows their memory as it knows that of everything else.
#pragma once

#include <cstdint>
#include <map>

#include "src/graph/graph.h"

namespace trainyard {

struct ParameterGathers {
  int64_t rank = 0, ranks = 1;
  // By whole parameter, its shard. Until the pass has run nodes read the whole one, which no
  // program holds.
  std::map<TensorId, TensorId> shards = {};
  // A group ends with the parameter that makes it this large: a link is used well by then, and a
  // layer that is larger has a group for itself.
  int64_t group_bytes = int64_t{4} << 20;
  int64_t ahead = 1;
};

/// Runs behind all other passes: these see a graph like that of one device.
void gather_parameters(Graph& graph, const ParameterGathers& gathers);

}  // namespace trainyard
