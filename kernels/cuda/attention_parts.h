// kernels/cuda/attention_parts.h: the operands, masks and dropout of attention, shared by the
// kernels in F32 (attention.cu) and those on tensor cores (tensor_attention.cu).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "kernels/attention.h"
#include "kernels/cuda/launch.h"
#include "kernels/math/elementary.h"
#include "kernels/math/key_range.h"
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

/// The keys [begin, end) that a query sees.
struct SeenRange {
  int begin, end;
};

/// `head` counts the heads of queries of all sequences; `group` of them read one head of keys.
struct Sizes {
  int64_t N, H, Tq, Tk, D, q_row, kv_row, group;
  float scale;
  bool fours;
  math::KeyRules rules;
  SeenKeys limits;

  TRAINYARD_HD int64_t q_at(int64_t head) const { return head / H * Tq * q_row + head % H * D; }
  template <bool kLimited>
  TRAINYARD_HD int64_t kv_at(int64_t head) const {
    const int64_t own = kLimited ? head % H / group : head % H;
    return head / H * Tk * kv_row + own * D;
  }
  TRAINYARD_HD int64_t y_at(int64_t head) const { return (head / H * Tq * H + head % H) * D; }
  TRAINYARD_HD Rows queries(In x, int64_t head) const { return {x + q_at(head), q_row, Tq}; }
  template <bool kLimited>
  TRAINYARD_HD Rows keys(In x, int64_t head) const {
    return {x + kv_at<kLimited>(head), kv_row, Tk};
  }
  TRAINYARD_HD Rows results(In x, int64_t head) const { return {x + y_at(head), H * D, Tq}; }
  /// Returns whether the keys are limited by more than causal masking, or shared by several heads
  /// of queries. Kernels have a variant for each, kLimited, because one for both would need more
  /// registers.
  bool limited() const {
    return group > 1 || rules.window > 0 || limits.positions != nullptr ||
           limits.key_counts != nullptr;
  }
  /// Returns the keys that a query sees; none if it does not exist.
  TRAINYARD_HD SeenRange range(int64_t head, int64_t query) const {
    if (query >= Tq) return {0, 0};
    const int64_t n = head / H;
    const math::KeyRange keys = math::keys_of(
        rules, query, limits.positions == nullptr ? nullptr : limits.positions + n * Tq + query,
        limits.key_counts == nullptr ? nullptr : limits.key_counts + n);
    return {static_cast<int>(keys.begin), static_cast<int>(keys.end)};
  }
};

/// Which keys a query sees.
template <bool kLimited>
struct Sight {
  SeenRange range;
  TRAINYARD_DEVICE Sight(const Sizes& s, int64_t head, int64_t query)
      : range(s.range(head, query)) {}
  TRAINYARD_DEVICE bool has(int64_t key) const {
    const int k = static_cast<int>(key);
    return k >= range.begin && k < range.end;
  }
};
template <>
struct Sight<false> {
  const Sizes& s;
  int64_t query;
  TRAINYARD_DEVICE Sight(const Sizes& sizes, int64_t, int64_t i) : s(sizes), query(i) {}
  TRAINYARD_DEVICE bool has(int64_t key) const {
    return key < s.Tk && query < s.Tq && (!s.rules.causal || key <= query);
  }
};

/// Returns the keys from the first to the last that any of `size` queries from `first` on sees. All
/// threads of a warp call it, and get the same.
template <bool kLimited>
TRAINYARD_DEVICE SeenRange seen_by_tile(const Sizes& s, int64_t head, int64_t first, int size) {
  const int64_t end = first + size;
  if constexpr (!kLimited) {
    return {0, static_cast<int>(s.rules.causal && end < s.Tk ? end : s.Tk)};
  }
  const int64_t last = end < s.Tq ? end : s.Tq;
  if (s.limits.positions == nullptr) {  // later queries see neither earlier first nor last keys
    return {s.range(head, first).begin, s.range(head, last - 1).end};
  }
  SeenRange all{static_cast<int>(s.Tk), 0};
  for (int64_t query = first + threadIdx.x % kWarp; query < last; query += kWarp) {
    const SeenRange own = s.range(head, query);
    if (own.begin == own.end) continue;
    all.begin = own.begin < all.begin ? own.begin : all.begin;
    all.end = own.end > all.end ? own.end : all.end;
  }
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    const int begin = __shfl_xor_sync(0xFFFFFFFFu, all.begin, distance);
    const int after = __shfl_xor_sync(0xFFFFFFFFu, all.end, distance);
    all.begin = begin < all.begin ? begin : all.begin;
    all.end = after > all.end ? after : all.end;
  }
  return all;
}

/// Calls f(head) for each head of queries that reads the keys of `first`.
template <bool kLimited, typename F>
TRAINYARD_DEVICE void for_group(const Sizes& s, int64_t first, const F& f) {
  if constexpr (kLimited) {
    for (int64_t head = first; head < first + s.group; ++head) f(head);
  } else {
    f(first);
  }
}

/// Returns whether any of `size` queries from `query` on sees any of the keys [first, after). All
/// threads of a warp call it, and get the same.
template <bool kLimited>
TRAINYARD_DEVICE bool tiles_meet(const Sizes& s, int64_t head, int64_t query, int size,
                                 int64_t first, int64_t after) {
  if constexpr (!kLimited) return true;
  const SeenRange seen = seen_by_tile<kLimited>(s, head, query, size);
  return seen.begin < after && seen.end > first;
}

/// Returns the first query that may see key `first` or later ones.
template <bool kLimited>
TRAINYARD_DEVICE int64_t first_query(const Sizes& s, int64_t first) {
  return s.rules.causal && !(kLimited && s.rules.cached) ? first : 0;
}

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
/// Returns this block's tile of keys. `head` is the first of the heads of queries that read it.
template <bool kLimited>
TRAINYARD_DEVICE Tile tile_of_keys(const Sizes& s, int64_t size) {
  const int64_t tiles = tiles_of(s.Tk, size);
  return {blockIdx.x / tiles * (kLimited ? s.group : 1), blockIdx.x % tiles * size};
}

/// Calls f(limited), an integral constant, for the variant of a kernel.
template <typename F>
void with_limits(const Sizes& s, const F& f) {
  if (s.limited()) {
    f(std::true_type());
  } else {
    f(std::false_type());
  }
}

/// The factor of a row's results, and its log_sum_exp; both are 0 if it sees no key.
TRAINYARD_DEVICE float inverse_of(float total) { return total == 0 ? 0.0f : 1.0f / total; }
TRAINYARD_DEVICE float log_sum_exp(float max, float total) {
  return total == 0 ? 0.0f : max + math::log(total);
}

inline Sizes sizes_of(const AttentionDims& d, const SeenKeys& limits,
                      std::initializer_list<In> operands) {
  bool fours = d.D % 4 == 0 && d.q_row % 4 == 0 && d.kv_row % 4 == 0;
  for (const In& x : operands) fours = fours && takes_four(x);
  return {d.N,      d.H,           d.Tq,
          d.Tk,     d.D,           d.q_row,
          d.kv_row, d.group(),     static_cast<float>(d.scale),
          fours,    d.key_rules(), limits};
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
