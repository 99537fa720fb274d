// Access   a block computes a tile of 64 queries (forward, dq) or 64 keys (dk, dv) of a head.
//          Shared memory contains one tile of scores (17 KiB) and chunks of the operands (16 KiB).
//          A thread has 4 x 4 scores in registers, and its columns of 4 rows of the result.
//          Operands are read once for each tile that they are combined with, 256 B at a time,
//          mostly from the L2 cache. Tiles that no query of a block sees are skipped. Arithmetic is
//          in F32, without tensor cores.
// Time     limited by 4 Tq Tk D operations forward and 14 backward, not by memory; expected at
//          about 40 % of the 67 TFLOP/s of an H200: N H = 96, T = 1024, D = 64, causal: 0.5 ms
//          forward, 1.8 ms backward.
//
// If the dims allow TF32, kernels on tensor cores are used instead (tensor_attention.h).
// Heads of kWideMin elements or more use simple loops instead, with one block per query or key.
#include "kernels/attention.h"

#include <algorithm>
#include <type_traits>

#include "kernels/cuda/attention_parts.h"
#include "kernels/cuda/mma.h"
#include "kernels/cuda/row.h"
#include "kernels/cuda/tensor_attention.h"
#include "kernels/math/elementary.h"

namespace trainyard::kernels::cuda {
namespace {

using namespace attention;

constexpr int kTile = 64;   // queries, and keys, in a tile
constexpr int kChunk = 32;  // columns of the operands of scores that are in shared memory at a time
constexpr int kSide = 16;   // a block is 16 x 16 threads, with 4 x 4 elements of a tile each
static_assert(kSide * kSide == kBlockThreads && 4 * kSide == kTile);
constexpr int kScoreRow = kTile + 4;  // floats per row of scores, padded against bank conflicts
constexpr int64_t kWideMin = 257;
constexpr int64_t kWideMax = 4096;

/// Returns the dropout factors m[i, j .. j + 3] of a head; j = `key` is a multiple of 4.
TRAINYARD_DEVICE Four keeps(const Drawn& drawn, int64_t query_of_all, int64_t key) {
  if (!drawn.any) return {{1, 1, 1, 1}};
  const uint32_t kept = kept_keys(drawn, query_of_all, key);
  Four m;
  for (int k = 0; k < 4; ++k) m.v[k] = kept >> k & 1u ? drawn.scale : 0.0f;
  return m;
}

struct alignas(16) Shared {
  float scores[kTile * kScoreRow];
  float operands[2][kTile * kChunk];  // or [kTile, 2 kChunk]
};

/// Returns the first row and column of this thread's 4 x 4 elements of a tile.
TRAINYARD_DEVICE int own_row() { return static_cast<int>(threadIdx.x) / kSide * 4; }
TRAINYARD_DEVICE int own_column() { return static_cast<int>(threadIdx.x) % kSide * 4; }

/// Elements column .. column + 3 of position t; 0 outside the operand.
TRAINYARD_DEVICE Four part_of_row(const Sizes& s, const Rows& x, int64_t t, int64_t column) {
  if (t >= x.count || column >= s.D) return {};
  if (s.fours) return load4(x.base, t * x.row + column);
  Four f{};
  for (int k = 0; k < 4; ++k) {
    if (column + k < s.D) f.v[k] = x.base[t * x.row + column + k];
  }
  return f;
}

/// Index of a row's group of four elements in a tile of kChunk columns, with an XOR swizzle by row:
/// adjacent threads, whose rows are four apart, read different banks.
TRAINYARD_DEVICE int turned(int row, int four) {
  return row * kChunk + (four ^ (row / 4 % (kChunk / 4))) * 4;
}

TRAINYARD_DEVICE void load_turned(const Sizes& s, const Rows& x, int64_t first, int64_t column,
                                  float* tile) {
  constexpr int kFours = kChunk / 4;
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kFours; i += kBlockThreads) {
    const int row = i / kFours, four = i % kFours;
    *reinterpret_cast<Four*>(tile + turned(row, four)) =
        part_of_row(s, x, first + row, column + 4 * four);
  }
}

/// dots[i][j] = left[first_left + own_row + i] . right[first_right + own_column + j]
TRAINYARD_DEVICE void multiply_rows(const Sizes& s, Shared& shared, const Rows& left,
                                    int64_t first_left, const Rows& right, int64_t first_right,
                                    float (&dots)[4][4]) {
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) dots[i][j] = 0;
  }
  for (int64_t column = 0; column < s.D; column += kChunk) {
    __syncthreads();  // the previous contents have been read
    load_turned(s, left, first_left, column, shared.operands[0]);
    load_turned(s, right, first_right, column, shared.operands[1]);
    __syncthreads();
    for (int four = 0; four < kChunk / 4 && column + 4 * four < s.D; ++four) {
      Four a[4], b[4];
      for (int i = 0; i < 4; ++i) {
        a[i] = four_of(shared.operands[0] + turned(own_row() + i, four));
        b[i] = four_of(shared.operands[1] + turned(own_column() + i, four));
      }
      for (int i = 0; i < 4; ++i) {
        for (int j = 0; j < 4; ++j) {
          for (int k = 0; k < 4; ++k) dots[i][j] += a[i].v[k] * b[j].v[k];
        }
      }
    }
  }
}

/// Rows own_row .. own_row + 3 of a result: in each row, kChunks groups of kColumns adjacent
/// columns.
template <int kChunks, int kColumns>
struct Result {
  static constexpr int kWidth = kSide * kColumns;  // columns of one chunk
  float v[4][kChunks][kColumns] = {};

  TRAINYARD_DEVICE static int column(int chunk) {
    return chunk * kWidth + static_cast<int>(threadIdx.x) % kSide * kColumns;
  }

  /// Adds the product of scores [kTile, kTile] and the rows of x from `first` on.
  TRAINYARD_DEVICE void add_product(const Sizes& s, Shared& shared, const Rows& x, int64_t first) {
    float* const tile = shared.operands[0];
    static_assert(kWidth <= 2 * kChunk);
    TRAINYARD_UNROLL
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      if (chunk * kWidth >= s.D) continue;
      __syncthreads();  // the scores are written, and the tile's previous contents have been read
      for (int i = static_cast<int>(threadIdx.x); i < kTile * kWidth / 4; i += kBlockThreads) {
        const int row = i / (kWidth / 4), four = i % (kWidth / 4);
        *reinterpret_cast<Four*>(tile + row * kWidth + 4 * four) =
            part_of_row(s, x, first + row, chunk * kWidth + 4 * four);
      }
      __syncthreads();
      for (int t = 0; t < kTile && first + t < x.count; t += 4) {  // the remaining scores are 0
        Four p[4];
        for (int i = 0; i < 4; ++i) p[i] = four_of(shared.scores + (own_row() + i) * kScoreRow + t);
        for (int k = 0; k < 4; ++k) {
          const float* from =
              tile + (t + k) * kWidth + static_cast<int>(threadIdx.x) % kSide * kColumns;
          float e[kColumns];
          if constexpr (kColumns == 4) {
            const Four f = four_of(from);
            for (int c = 0; c < 4; ++c) e[c] = f.v[c];
          } else {
            for (int c = 0; c < kColumns; ++c) e[c] = from[c];
          }
          for (int i = 0; i < 4; ++i) {
            for (int c = 0; c < kColumns; ++c) v[i][chunk][c] += p[i].v[k] * e[c];
          }
        }
      }
    }
  }

  TRAINYARD_DEVICE void multiply_row(int i, float factor) {
    TRAINYARD_UNROLL
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      for (int c = 0; c < kColumns; ++c) v[i][chunk][c] *= factor;
    }
  }

  /// Writes row own_row + i to y, which points to the start of that row.
  TRAINYARD_DEVICE void store_row(const Sizes& s, int i, const Out& y) const {
    TRAINYARD_UNROLL
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const int at = column(chunk);
      if constexpr (kColumns == 4) {
        if (s.fours) {
          if (at < s.D) {
            store4(y, at, {{v[i][chunk][0], v[i][chunk][1], v[i][chunk][2], v[i][chunk][3]}});
          }
          continue;
        }
      }
      for (int c = 0; c < kColumns; ++c) {
        if (at + c < s.D) y.set(at + c, v[i][chunk][c]);
      }
    }
  }
};

/// Reduces over the threads that share rows; all of them get the result.
template <typename Op>
TRAINYARD_DEVICE float row_reduce(float value, Op op) {
  for (int distance = kSide / 2; distance > 0; distance /= 2) {
    value = op(value, __shfl_xor_sync(0xFFFFFFFFu, value, distance));
  }
  return value;
}

TRAINYARD_DEVICE void store_scores(Shared& shared, int i, const Four& p) {
  *reinterpret_cast<Four*>(shared.scores + (own_row() + i) * kScoreRow + own_column()) = p;
}

template <int kChunks, int kColumns, bool kLimited>
TRAINYARD_KERNEL_OF(kBlockThreads, kChunks == 1 ? 2 : 1)
void forward_tiles(Sizes s, Drawn drawn, In q, In k, In v, Out y, float* lse) {
  TRAINYARD_SHARED(Shared, shared);
  const auto [head, first] = tile_of_queries(s, kTile);
  const Rows queries = s.queries(q, head), keys = s.keys<kLimited>(k, head),
             values = s.keys<kLimited>(v, head);
  Result<kChunks, kColumns> result;
  float max[4], sum[4];  // the sum over this thread's columns
  for (int i = 0; i < 4; ++i) {
    max[i] = Max::kIdentity;
    sum[i] = 0;
  }
  const SeenRange all = seen_by_tile<kLimited>(s, head, first, kTile);
  for (int64_t key = all.begin / kTile * kTile; key < all.end; key += kTile) {
    float dots[4][4];
    multiply_rows(s, shared, queries, first, keys, key, dots);
    TRAINYARD_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int64_t query = first + own_row() + i;
      const Sight<kLimited> seen(s, head, query);
      float largest = Max::kIdentity;
      for (int j = 0; j < 4; ++j) {
        dots[i][j] *= s.scale;
        if (seen.has(key + own_column() + j)) largest = Max()(dots[i][j], largest);
      }
      largest = Max()(row_reduce(largest, Max()), max[i]);
      const float correction = math::exp(max[i] - largest);
      max[i] = largest;
      sum[i] *= correction;
      result.multiply_row(i, correction);
      const Four m = keeps(drawn, head * s.Tq + query, key + own_column());
      Four p;
      for (int j = 0; j < 4; ++j) {
        const bool sees = seen.has(key + own_column() + j);
        p.v[j] = sees ? math::exp(dots[i][j] - largest) : 0.0f;
        sum[i] += p.v[j];
        p.v[j] *= m.v[j];
      }
      store_scores(shared, i, p);
    }
    result.add_product(s, shared, values, key);
  }
  TRAINYARD_UNROLL
  for (int i = 0; i < 4; ++i) {
    const float total = row_reduce(sum[i], Sum());
    const int64_t query = first + own_row() + i;
    if (query >= s.Tq) continue;
    result.multiply_row(i, inverse_of(total));
    result.store_row(s, i, y + s.y_at(head) + query * s.H * s.D);
    if (lse != nullptr && own_column() == 0) {
      lse[head * s.Tq + query] = log_sum_exp(max[i], total);
    }
  }
}

// delta [N, H, Tq] = dy . y, with one warp per element. With TF32 it takes dy as rounded as the
// products of dy and v do, so that the gradients of a row's scores still add up to 0.
TRAINYARD_KERNEL void write_delta(Sizes s, bool tf32, In y, In dy, float* delta) {
  using Threads = RowThreads<false>;
  for (int64_t row = Threads::first(); row < s.N * s.Tq * s.H; row += Threads::step()) {
    float sum = 0;
    Threads::for_packs<1>(s.D, [&](int64_t c) {
      const float gradient = dy[row * s.D + c];
      sum += (tf32 ? round_to_tf32(gradient) : gradient) * y[row * s.D + c];
    });
    sum = Threads::reduce(sum, Sum());
    const int64_t h = row % s.H, query = row / s.H % s.Tq, n = row / s.H / s.Tq;
    if (Threads::lane() == 0) delta[(n * s.H + h) * s.Tq + query] = sum;
  }
}

template <int kChunks, int kColumns, bool kLimited>
TRAINYARD_KERNEL_OF(kBlockThreads, kChunks == 1 ? 2 : 1)
void query_gradient_tiles(Sizes s, Drawn drawn, In q, In k, In v, const float* lse,
                          const float* delta, In dy, Out dq) {
  TRAINYARD_SHARED(Shared, shared);
  const auto [head, first] = tile_of_queries(s, kTile);
  const Rows queries = s.queries(q, head), keys = s.keys<kLimited>(k, head),
             values = s.keys<kLimited>(v, head);
  const Rows gradients = s.results(dy, head);
  Result<kChunks, kColumns> result;
  float row_lse[4], row_delta[4];
  TRAINYARD_UNROLL
  for (int i = 0; i < 4; ++i) {
    const int64_t query = first + own_row() + i;
    row_lse[i] = query < s.Tq ? lse[head * s.Tq + query] : 0.0f;
    row_delta[i] = query < s.Tq ? delta[head * s.Tq + query] : 0.0f;
  }
  const SeenRange all = seen_by_tile<kLimited>(s, head, first, kTile);
  for (int64_t key = all.begin / kTile * kTile; key < all.end; key += kTile) {
    float dots[4][4], of_values[4][4];
    multiply_rows(s, shared, queries, first, keys, key, dots);
    multiply_rows(s, shared, gradients, first, values, key, of_values);
    TRAINYARD_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int64_t query = first + own_row() + i;
      const Sight<kLimited> seen(s, head, query);
      const Four m = keeps(drawn, head * s.Tq + query, key + own_column());
      Four ds;
      for (int j = 0; j < 4; ++j) {
        const bool sees = seen.has(key + own_column() + j);
        const float p = sees ? math::exp(s.scale * dots[i][j] - row_lse[i]) : 0.0f;
        ds.v[j] = p * (m.v[j] * of_values[i][j] - row_delta[i]);
      }
      store_scores(shared, i, ds);
    }
    result.add_product(s, shared, keys, key);
  }
  TRAINYARD_UNROLL
  for (int i = 0; i < 4; ++i) {
    const int64_t query = first + own_row() + i;
    if (query >= s.Tq) continue;
    result.multiply_row(i, s.scale);
    result.store_row(s, i, dq + s.q_at(head) + query * s.q_row);
  }
}

// In this kernel the rows of a tile are keys, and the columns are queries.
template <int kChunks, int kColumns, bool kLimited>
TRAINYARD_KERNEL_OF(kBlockThreads, kChunks == 1 ? 2 : 1)
void key_gradient_tiles(Sizes s, Drawn drawn, In q, In k, In v, const float* lse,
                        const float* delta, In dy, Out dk, Out dv) {
  TRAINYARD_SHARED(Shared, shared);
  const auto [first_head, first] = tile_of_keys<kLimited>(s, kTile);
  const Rows keys = s.keys<kLimited>(k, first_head), values = s.keys<kLimited>(v, first_head);
  Result<kChunks, kColumns> of_keys, of_values;
  for_group<kLimited>(s, first_head, [&](int64_t head) {
    const Rows queries = s.queries(q, head), gradients = s.results(dy, head);
    for (int64_t query = first_query<kLimited>(s, first); query < s.Tq; query += kTile) {
      if (!tiles_meet<kLimited>(s, head, query, kTile, first, first + kTile)) continue;
      float dots[4][4], dp[4][4];
      multiply_rows(s, shared, keys, first, queries, query, dots);
      multiply_rows(s, shared, values, first, gradients, query, dp);
      TRAINYARD_UNROLL
      for (int j = 0; j < 4; ++j) {
        const int64_t at = query + own_column() + j;
        const bool exists = at < s.Tq;
        const float column_lse = exists ? lse[head * s.Tq + at] : 0.0f;
        const float column_delta = exists ? delta[head * s.Tq + at] : 0.0f;
        const Sight<kLimited> seen(s, head, at);
        const Four m = keeps(drawn, head * s.Tq + at, first + own_row());
        for (int i = 0; i < 4; ++i) {
          const bool sees = seen.has(first + own_row() + i);
          const float p = sees ? math::exp(s.scale * dots[i][j] - column_lse) : 0.0f;
          dots[i][j] = m.v[i] * p;
          dp[i][j] = p * (m.v[i] * dp[i][j] - column_delta);
        }
      }
      if (dv) {
        for (int i = 0; i < 4; ++i) {
          store_scores(shared, i, {{dots[i][0], dots[i][1], dots[i][2], dots[i][3]}});
        }
        of_values.add_product(s, shared, gradients, query);
        __syncthreads();  // the scores have been read
      }
      if (dk) {
        for (int i = 0; i < 4; ++i) {
          store_scores(shared, i, {{dp[i][0], dp[i][1], dp[i][2], dp[i][3]}});
        }
        of_keys.add_product(s, shared, queries, query);
      }
    }
  });
  TRAINYARD_UNROLL
  for (int i = 0; i < 4; ++i) {
    const int64_t key = first + own_row() + i;
    if (key >= s.Tk) continue;
    of_keys.multiply_row(i, s.scale);
    const int64_t at = s.kv_at<kLimited>(first_head) + key * s.kv_row;
    if (dk) of_keys.store_row(s, i, dk + at);
    if (dv) of_values.store_row(s, i, dv + at);
  }
}

// Wide heads: a block computes one row of the result in shared memory, from kBlockThreads other
// rows at a time.

/// dots[t] = left . right[first + t] for t < count; one warp per dot product.
TRAINYARD_DEVICE void multiply_wide(int64_t D, const In& left, const Rows& right, int64_t first,
                                    int count, float* dots) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int t = static_cast<int>(threadIdx.x) / kWarp; t < count; t += kBlockThreads / kWarp) {
    float sum = 0;
    for (int64_t c = lane; c < D; c += kWarp) {
      sum += left[c] * right.base[(first + t) * right.row + c];
    }
    sum = warp_reduce(sum, Sum());
    if (lane == 0) dots[t] = sum;
  }
}

/// sums = factor * sums + scores times the rows of x. Each thread updates its own columns.
TRAINYARD_DEVICE void add_wide(int64_t D, float factor, const float* scores, const Rows& x,
                               int64_t first, int count, float* sums) {
  for (int64_t c = threadIdx.x; c < D; c += kBlockThreads) {
    float sum = factor * sums[c];
    for (int t = 0; t < count; ++t) sum += scores[t] * x.base[(first + t) * x.row + c];
    sums[c] = sum;
  }
}

TRAINYARD_DEVICE float keep_one(const Drawn& drawn, int64_t query_of_all, int64_t key) {
  return keeps(drawn, query_of_all, key / 4 * 4).v[key % 4];
}

TRAINYARD_KERNEL void forward_wide(Sizes s, Drawn drawn, In q, In k, In v, Out y, float* lse) {
  TRAINYARD_DYNAMIC_SHARED(float, sums);  // [D]
  TRAINYARD_SHARED(float, p, [kBlockThreads]);
  const int64_t head = blockIdx.x / s.Tq, query = blockIdx.x % s.Tq;
  const SeenRange seen = s.range(head, query);
  for (int64_t c = threadIdx.x; c < s.D; c += kBlockThreads) sums[c] = 0;
  float max = Max::kIdentity, total = 0;
  for (int64_t key = seen.begin; key < seen.end; key += kBlockThreads) {
    const auto count = static_cast<int>(std::min(int64_t{kBlockThreads}, seen.end - key));
    const auto mine = static_cast<int>(threadIdx.x);
    __syncthreads();  // p has been read
    multiply_wide(s.D, q + s.q_at(head) + query * s.q_row, s.keys<true>(k, head), key, count, p);
    __syncthreads();
    const float score = mine < count ? s.scale * p[mine] : Max::kIdentity;
    const float largest = Max()(block_max(score), max);
    const float e = mine < count ? math::exp(score - largest) : 0.0f;
    const float correction = math::exp(max - largest);
    max = largest;
    total = total * correction + block_sum(e);
    if (mine < count) p[mine] = e * keep_one(drawn, head * s.Tq + query, key + mine);
    __syncthreads();
    add_wide(s.D, correction, p, s.keys<true>(v, head), key, count, sums);
  }
  const Out row = y + s.y_at(head) + query * s.H * s.D;
  for (int64_t c = threadIdx.x; c < s.D; c += kBlockThreads)
    row.set(c, sums[c] * inverse_of(total));
  if (lse != nullptr && threadIdx.x == 0) lse[head * s.Tq + query] = log_sum_exp(max, total);
}

TRAINYARD_KERNEL void query_gradient_wide(Sizes s, Drawn drawn, In q, In k, In v, const float* lse,
                                          const float* delta, In dy, Out dq) {
  TRAINYARD_DYNAMIC_SHARED(float, sums);  // [D]
  TRAINYARD_SHARED(float, ds, [kBlockThreads]);
  TRAINYARD_SHARED(float, dp, [kBlockThreads]);
  const int64_t head = blockIdx.x / s.Tq, query = blockIdx.x % s.Tq, of_all = head * s.Tq + query;
  const SeenRange seen = s.range(head, query);
  for (int64_t c = threadIdx.x; c < s.D; c += kBlockThreads) sums[c] = 0;
  for (int64_t key = seen.begin; key < seen.end; key += kBlockThreads) {
    const auto count = static_cast<int>(std::min(int64_t{kBlockThreads}, seen.end - key));
    const auto mine = static_cast<int>(threadIdx.x);
    __syncthreads();  // ds has been read
    multiply_wide(s.D, q + s.q_at(head) + query * s.q_row, s.keys<true>(k, head), key, count, ds);
    multiply_wide(s.D, s.results(dy, head).base + query * s.H * s.D, s.keys<true>(v, head), key,
                  count, dp);
    __syncthreads();
    if (mine < count) {
      const float m = keep_one(drawn, of_all, key + mine);
      ds[mine] = math::exp(s.scale * ds[mine] - lse[of_all]) * (m * dp[mine] - delta[of_all]);
    }
    __syncthreads();
    add_wide(s.D, 1.0f, ds, s.keys<true>(k, head), key, count, sums);
  }
  const Out row = dq + s.q_at(head) + query * s.q_row;
  for (int64_t c = threadIdx.x; c < s.D; c += kBlockThreads) row.set(c, s.scale * sums[c]);
}

TRAINYARD_KERNEL void key_gradient_wide(Sizes s, Drawn drawn, In q, In k, In v, const float* lse,
                                        const float* delta, In dy, Out dk, Out dv) {
  TRAINYARD_DYNAMIC_SHARED(float, of_keys);  // [2, D]
  float* const of_values = of_keys + s.D;
  TRAINYARD_SHARED(float, mp, [kBlockThreads]);
  TRAINYARD_SHARED(float, ds, [kBlockThreads]);
  const int64_t first_head = blockIdx.x / s.Tk * s.group, key = blockIdx.x % s.Tk;
  const int64_t at = s.kv_at<true>(first_head) + key * s.kv_row;
  for (int64_t c = threadIdx.x; c < 2 * s.D; c += kBlockThreads) of_keys[c] = 0;
  for_group<true>(s, first_head, [&](int64_t head) {
    const Rows queries = s.queries(q, head), gradients = s.results(dy, head);
    for (int64_t query = first_query<true>(s, key); query < s.Tq; query += kBlockThreads) {
      const auto count = static_cast<int>(std::min(int64_t{kBlockThreads}, s.Tq - query));
      const auto mine = static_cast<int>(threadIdx.x);
      __syncthreads();  // mp and ds have been read, and the sums are zero
      multiply_wide(s.D, k + at, queries, query, count, mp);
      multiply_wide(s.D, v + at, gradients, query, count, ds);
      __syncthreads();
      if (mine < count) {
        const int64_t of_all = head * s.Tq + query + mine;
        const bool sees = Sight<true>(s, head, query + mine).has(key);
        const float m = keep_one(drawn, of_all, key);
        const float p = sees ? math::exp(s.scale * mp[mine] - lse[of_all]) : 0.0f;
        mp[mine] = m * p;
        ds[mine] = p * (m * ds[mine] - delta[of_all]);
      }
      __syncthreads();
      add_wide(s.D, 1.0f, mp, gradients, query, count, of_values);
      add_wide(s.D, 1.0f, ds, queries, query, count, of_keys);
    }
  });
  __syncthreads();
  for (int64_t c = threadIdx.x; c < s.D; c += kBlockThreads) {
    if (dk) dk.set(at + c, s.scale * of_keys[c]);
    if (dv) dv.set(at + c, of_values[c]);
  }
}

/// Calls f(chunks, columns, limited) for the narrowest Result with at least D columns.
template <typename F>
void with_result(const Sizes& s, const F& f) {
  with_limits(s, [&](auto limited) {
    if (s.D <= kSide * 2) {
      f(std::integral_constant<int, 1>(), std::integral_constant<int, 2>(), limited);
    } else if (s.D <= kSide * 4) {
      f(std::integral_constant<int, 1>(), std::integral_constant<int, 4>(), limited);
    } else if (s.D <= kSide * 8) {
      f(std::integral_constant<int, 2>(), std::integral_constant<int, 4>(), limited);
    } else {
      f(std::integral_constant<int, 4>(), std::integral_constant<int, 4>(), limited);
    }
  });
}

int shared_bytes(int64_t floats) { return static_cast<int>(floats * 4); }

}  // namespace

bool supports_attention(const AttentionDims& d) { return d.D <= kWideMax; }

void attention_forward(const AttentionDims& d, const AttentionOperands<Views>& o, Run run) {
  check(d, o);
  if (takes_tensor_attention(d)) return tensor_attention_forward(d, o, run);
  const Sizes s = sizes_of(d, o.seen, {o.q, o.k, o.v, o.y});
  const Drawn drawn = drawn_of(d, o.step);
  if (d.D >= kWideMin) {
    launch({d.N * d.H * d.Tq, kBlockThreads, shared_bytes(d.D)}, run.stream, forward_wide, s, drawn,
           o.q, o.k, o.v, o.y, o.lse);
    return;
  }
  with_result(s, [&](auto chunks, auto columns, auto limited) {
    launch({d.N * d.H * tiles_of(d.Tq, kTile)}, run.stream,
           forward_tiles<chunks.value, columns.value, limited.value>, s, drawn, o.q, o.k, o.v, o.y,
           o.lse);
  });
}

int64_t attention_backward_workspace_bytes(const AttentionDims& d) {
  return d.N * d.H * d.Tq * static_cast<int64_t>(sizeof(float));
}

void attention_backward(const AttentionDims& d, const AttentionGradOperands<Views>& o, Run run) {
  check(d, o);
  const Sizes s = sizes_of(d, o.seen, {o.q, o.k, o.v, o.y, o.dy, o.dq, o.dk, o.dv});
  const Drawn drawn = drawn_of(d, o.step);
  auto* const delta = workspace_of<float>("attention_backward", run);
  launch(grid_for(d.N * d.Tq * d.H * kWarp), run.stream, write_delta, s, takes_tensor_attention(d),
         o.y, o.dy, delta);
  if (takes_tensor_attention(d)) return tensor_attention_backward(d, o, delta, run);
  if (d.D >= kWideMin) {
    if (o.dq) {
      launch({d.N * d.H * d.Tq, kBlockThreads, shared_bytes(d.D)}, run.stream, query_gradient_wide,
             s, drawn, o.q, o.k, o.v, o.lse, delta, o.dy, o.dq);
    }
    if (o.dk || o.dv) {
      launch({d.N * d.key_heads() * d.Tk, kBlockThreads, shared_bytes(2 * d.D)}, run.stream,
             key_gradient_wide, s, drawn, o.q, o.k, o.v, o.lse, delta, o.dy, o.dk, o.dv);
    }
    return;
  }
  with_result(s, [&](auto chunks, auto columns, auto limited) {
    if (o.dq) {
      launch({d.N * d.H * tiles_of(d.Tq, kTile)}, run.stream,
             query_gradient_tiles<chunks.value, columns.value, limited.value>, s, drawn, o.q, o.k,
             o.v, o.lse, delta, o.dy, o.dq);
    }
    if (o.dk || o.dv) {
      launch({d.N * d.key_heads() * tiles_of(d.Tk, kTile)}, run.stream,
             key_gradient_tiles<chunks.value, columns.value, limited.value>, s, drawn, o.q, o.k,
             o.v, o.lse, delta, o.dy, o.dk, o.dv);
    }
  });
}

}  // namespace trainyard::kernels::cuda
