// kernels/shard.h: how a tensor is cut into one shard for each of several ranks.
//
//   shard r of N   elements [r c, min((r + 1) c, E)) of the E in row-major order
//   c              E / N rounded up to a multiple of kShardStep, at most E
//
// Memory for a shard is c elements on every rank, so that all ranks have the same layout. The last
// shards of a tensor may be shorter than that, or empty.
#pragma once

#include <algorithm>
#include <cstdint>

namespace trainyard::kernels {

/// 64 bytes of F32: shards begin where vector instructions like it.
inline constexpr int64_t kShardStep = 16;

/// c: elements that each rank has memory for.
constexpr int64_t shard_elements(int64_t elements, int64_t ranks) {
  const int64_t each = (elements + ranks - 1) / ranks;
  return std::min(elements, (each + kShardStep - 1) / kShardStep * kShardStep);
}

struct ShardRange {
  int64_t first = 0;
  int64_t count = 0;
};
constexpr ShardRange shard_range(int64_t elements, int64_t rank, int64_t ranks) {
  const int64_t size = shard_elements(elements, ranks);
  const int64_t first = std::min(elements, rank * size);
  return {first, std::min(size, elements - first)};
}

/// True if every rank's shard is whole, so that they lie one behind the other without a gap.
constexpr bool shards_are_even(int64_t elements, int64_t ranks) {
  return shard_elements(elements, ranks) * ranks == elements;
}

}  // namespace trainyard::kernels
