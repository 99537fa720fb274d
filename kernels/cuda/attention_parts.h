// kernels/cuda/attention_parts.h: the operands, masks and dropout of attention, shared by the
// kernels in F32 (attention.cu) and those on tensor cores (tensor_attention.cu).
#pragma once

#include <cstdint>
#include <initializer_list>

#include "kernels/attention.h"
#include "kernels/cuda/launch.h"
#include "kernels/math/philox.h"

namespace trainyard::kernels::cuda::attention {

/// The parameters of dropout, which draws numbers for a query and four adjacent keys at a time.
struct Drawn {
  bool any;
  uint64_t seed;
  uint32_t stream, threshold;
  float scale;  // the factor of a pair that is kept
  int64_t row, first_query;
  const int64_t* step;
};

/// Returns a mask in which bit k says whether dropout keeps the pair of this query, counted over
/// all heads, and key + k; `key` is a multiple of 4.
TRAINYARD_DEVICE uint32_t kept_keys(const Drawn& drawn, int64_t query_of_all, int64_t key) {
  const auto block =
      static_cast<uint64_t>(((drawn.first_query + query_of_all) * drawn.row + key) / 4);
  const math::Philox4 random =
      math::philox_block(drawn.seed, drawn.stream, static_cast<uint64_t>(*drawn.step), block);
  uint32_t kept = 0;
  for (int k = 0; k < 4; ++k) {
    if (math::dropout_keeps(random.v[k], drawn.threshold)) kept |= 1u << k;
  }
  return kept;
}

/// The vectors of one head, indexed by position.
struct Rows {
  In base;
  int64_t row, count;
};

struct Sizes {
  int64_t N, H, Tq, Tk, D, q_row, kv_row;
  float scale;
  bool causal, fours;

  TRAINYARD_HD int64_t q_at(int64_t head) const { return head / H * Tq * q_row + head % H * D; }
  TRAINYARD_HD int64_t kv_at(int64_t head) const { return head / H * Tk * kv_row + head % H * D; }
  TRAINYARD_HD int64_t y_at(int64_t head) const { return (head / H * Tq * H + head % H) * D; }
  TRAINYARD_HD Rows queries(In x, int64_t head) const { return {x + q_at(head), q_row, Tq}; }
  TRAINYARD_HD Rows keys(In x, int64_t head) const { return {x + kv_at(head), kv_row, Tk}; }
  TRAINYARD_HD Rows results(In x, int64_t head) const { return {x + y_at(head), H * D, Tq}; }
  /// Returns the number of keys that any query before `end` may attend to.
  TRAINYARD_HD int64_t keys_seen(int64_t end) const { return causal && end < Tk ? end : Tk; }
  TRAINYARD_HD bool sees(int64_t query, int64_t key) const {
    return key < Tk && query < Tq && (!causal || key <= query);
  }
};

TRAINYARD_DEVICE Four four_of(const float* p) { return *reinterpret_cast<const Four*>(p); }

/// Returns the number of tiles of `size` positions that cover all positions.
TRAINYARD_HD inline int64_t tiles_of(int64_t positions, int64_t size) {
  return (positions + size - 1) / size;
}

/// The part of a head that a block computes, from position `first` on.
struct Tile {
  int64_t head, first;
};
/// Returns this block's tile of queries. Each head begins with its last tile, because under causal
/// masking the last queries attend to the most keys.
TRAINYARD_DEVICE Tile tile_of_queries(const Sizes& s, int64_t size) {
  const int64_t tiles = tiles_of(s.Tq, size);
  return {blockIdx.x / tiles, (tiles - 1 - blockIdx.x % tiles) * size};
}
TRAINYARD_DEVICE Tile tile_of_keys(const Sizes& s, int64_t size) {
  const int64_t tiles = tiles_of(s.Tk, size);
  return {blockIdx.x / tiles, blockIdx.x % tiles * size};
}

inline Sizes sizes_of(const AttentionDims& d, std::initializer_list<In> operands) {
  bool fours = d.D % 4 == 0 && d.q_row % 4 == 0 && d.kv_row % 4 == 0;
  for (const In& x : operands) fours = fours && takes_four(x);
  return {d.N,      d.H,  d.Tq, d.Tk, d.D, d.q_row, d.kv_row, static_cast<float>(d.scale),
          d.causal, fours};
}

inline Drawn drawn_of(const AttentionDims& d, const int64_t* step) {
  return {d.dropout > 0,
          d.seed,
          d.stream,
          math::dropout_threshold(d.dropout),
          static_cast<float>(1 / (1 - d.dropout)),
          d.dropout_row(),
          d.first_head * d.Tq,
          step};
}

}  // namespace trainyard::kernels::cuda::attention
