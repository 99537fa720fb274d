// kernels/shard.h: how a tensor is cut into one shard per rank.
//
//   shard r of N   elements [r c, min((r + 1) c, E)) of the tensor's E, in row-major order
//   c              E / N rounded up to a multiple of kShardStep, at most E
//
// Every rank allocates c elements for a shard, so that all ranks use the same memory layout. The
// last shards of a tensor may have fewer elements, or none.
#pragma once

#include <algorithm>
#include <cstdint>

namespace trainyard::kernels {

/// 64 bytes of F32, so that shards are aligned for vector instructions.
inline constexpr int64_t kShardStep = 16;

/// Returns c, the number of elements for which each rank allocates memory.
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

/// Returns true if every rank's shard has c elements, so that the shards are adjacent without a
/// gap.
constexpr bool shards_are_even(int64_t elements, int64_t ranks) {
  return shard_elements(elements, ranks) * ranks == elements;
}

}  // namespace trainyard::kernels
