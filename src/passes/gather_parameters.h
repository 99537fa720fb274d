// src/passes/gather_parameters.h: gathers parameters that are sharded over the ranks before they
// are read. The whole parameter is released after its last reader (ZeRO stage 3;
// docs/decisions/sharding-the-parameters.md).
//
//   shard ── [Cast] ── GatherShardsStart ── GatherShardsDone ── whole ── readers
//
// The forward pass gathers a parameter before its first reader in that pass, and the backward pass
// does the same again. A parameter that is still in use when the backward pass begins is gathered
// only once. If products read a 16-bit copy, the copy is made of the shard, which halves the data
// to exchange.
//
// Parameters are gathered in groups, in the order of their first readers. The exchange of a group
// is started before the first reader of the group that is `ahead` groups earlier. Whatever the
// model's depth, at most `ahead` + 1 groups are in memory, apart from parameters that are read over
// longer stretches. Start and end of every exchange are nodes, so plans account for the memory.
#pragma once

#include <cstdint>
#include <map>

#include "src/graph/graph.h"

namespace trainyard {

struct ParameterGathers {
  int64_t rank = 0, ranks = 1;
  // The shard by whole parameter. Until the pass has run, nodes read the whole parameter, which no
  // rank stores.
  std::map<TensorId, TensorId> shards = {};
  // A group ends with the parameter that makes it this large, which is enough to use a link well. A
  // larger layer is a group of its own.
  int64_t group_bytes = int64_t{4} << 20;
  int64_t ahead = 1;
};

/// Runs after all other passes, so that these see the same graph as on one device.
void gather_parameters(Graph& graph, const ParameterGathers& gathers);

}  // namespace trainyard
