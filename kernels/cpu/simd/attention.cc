// The operands of a head are packed first: rows of D values are padded to whole vectors, and tiles
// of 64 keys are transposed where a product runs over D. All products then run over dense memory
// without remainders, and a tile's operands stay in the L1 cache.
#include "kernels/cpu/simd/attention.h"

#include <cmath>
#include <cstring>

#include "kernels/cpu/simd/products.h"
#include "kernels/cpu/simd/variant.h"
#include "kernels/math/transcendental.h"

namespace trainyard::kernels::cpu {
namespace {

constexpr int64_t kTile = kAttentionTile;
constexpr int64_t kRowStep = 4;    // number of rows is padded to a multiple of this
constexpr float kMasked = -1e30f;  // exp(kMasked - max) is 0 for every realistic maximum score

int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }
int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/// c [M, N] (+)= a [M, K] b [K, N], where N is a multiple of a vector. a has two strides, so that
/// it may be transposed.
template <bool kAccumulate>
void multiply(int64_t M, int64_t N, int64_t K, const float* a, int64_t a_row, int64_t a_step,
              const float* b, int64_t b_row, float* c, int64_t c_row) {
  multiply_columns<kRowStep, kAccumulate>(M, N / kLanes, K, a, a_row, a_step, b, b_row, c, c_row);
}

/// Fills `to` [padded rows, width] with factor * from [rows, D], padded with 0.
void pack_rows(int64_t rows, int64_t padded, int64_t D, int64_t width, const float* from,
               int64_t from_row, float factor, float* to) {
  for (int64_t t = 0; t < padded; ++t, to += width) {
    const float* row = from + t * from_row;
    const int64_t count = t < rows ? D : 0;
    for (int64_t i = 0; i < count; ++i) to[i] = factor * row[i];
    for (int64_t i = count; i < width; ++i) to[i] = 0;
  }
}

/// Fills `to` [D, 64] with the transpose of a tile [rows, D], padded with 0 up to `columns`.
void pack_tile(int64_t rows, int64_t columns, int64_t D, const float* from, int64_t from_row,
               float* to) {
  if (rows == kTile) {
    for (int64_t i = 0; i < D; ++i) {
      for (int64_t t = 0; t < kTile; ++t) to[i * kTile + t] = from[t * from_row + i];
    }
    return;
  }
  for (int64_t i = 0; i < D; ++i) {
    for (int64_t t = 0; t < columns; ++t) to[i * kTile + t] = t < rows ? from[t * from_row + i] : 0;
  }
}

void unpack_rows(int64_t rows, int64_t D, int64_t width, const float* from, float factor, float* to,
                 int64_t to_row) {
  for (int64_t t = 0; t < rows; ++t, from += width, to += to_row) {
    for (int64_t i = 0; i < D; ++i) to[i] = factor * from[i];
  }
}

/// Sizes in floats, all multiples of 16.
struct Sizes {
  int64_t width;  // D, padded to a multiple of 16
  int64_t q_tiles, k_tiles;
  int64_t k_rows;  // padded to whole tiles
  explicit Sizes(const HeadDims& d)
      : width(round_up(d.D, 16)),
        q_tiles((d.Tq + kTile - 1) / kTile),
        k_tiles((d.Tk + kTile - 1) / kTile),
        k_rows(k_tiles * kTile) {}
  int64_t tile_of_keys() const { return width * kTile; }
};

/// The tiles of keys [begin, end); begin == end if there are none.
struct TileRange {
  int64_t begin = 0, end = 0;
  bool empty() const { return begin >= end; }
  void add(const math::KeyRange& keys) {
    if (keys.begin >= keys.end) return;
    const int64_t first = keys.begin / kTile, after = (keys.end + kTile - 1) / kTile;
    begin = empty() ? first : smaller(begin, first);
    end = end < after ? after : end;
  }
};

math::KeyRange keys_of(const HeadDims& d, const HeadSeen& seen, int64_t i) {
  return math::keys_of(d.rules, i, seen.positions == nullptr ? nullptr : seen.positions + i,
                       seen.key_count);
}

/// The tile of queries that begins with query i0, and the keys that each of them sees.
struct QueryTile {
  int64_t i0, queries;
  int64_t rows;  // padded
  TileRange tiles;
  math::KeyRange seen[kTile];
  QueryTile(const HeadDims& d, const HeadSeen& limits, int64_t index)
      : i0(index * kTile), queries(smaller(kTile, d.Tq - i0)), rows(round_up(queries, kRowStep)) {
    for (int64_t r = 0; r < queries; ++r) {
      seen[r] = keys_of(d, limits, i0 + r);
      tiles.add(seen[r]);
    }
    for (int64_t r = queries; r < rows; ++r) seen[r] = {0, d.Tk};
  }
  bool sees_any(int64_t r) const { return seen[r].begin < seen[r].end; }
};

/// Returns the tiles of keys that the queries of tiles [begin, end) see.
TileRange keys_seen(const HeadDims& d, const HeadSeen& limits, int64_t begin, int64_t end) {
  TileRange all;
  for (int64_t i = begin * kTile; i < smaller(end * kTile, d.Tq); ++i) {
    all.add(keys_of(d, limits, i));
  }
  return all;
}

/// The tile of keys that begins with key j0: the number of its keys, and the number of columns that
/// are computed for them, a multiple of 16, so that a short sequence does not need all 64.
struct KeyTile {
  int64_t j0, keys, columns;
  KeyTile(const HeadDims& d, int64_t index)
      : j0(index * kTile), keys(smaller(kTile, d.Tk - j0)), columns(round_up(keys, 16)) {}
};

void mask(const QueryTile& queries, const KeyTile& tile, float* s) {
  for (int64_t r = 0; r < queries.rows; ++r) {
    const math::KeyRange& seen = queries.seen[r];
    float* row = s + r * kTile;
    const int64_t before = smaller(seen.begin - tile.j0, tile.columns);
    for (int64_t j = 0; j < before; ++j) row[j] = kMasked;
    const int64_t after = seen.end - tile.j0;
    for (int64_t j = after < 0 ? 0 : after; j < tile.columns; ++j) row[j] = kMasked;
  }
}

/// Fills m [rows, 64] with the dropout factors of a tile's probabilities.
void draw_mask(const HeadDropout& dropout, int64_t i0, int64_t rows, int64_t j0, float* m) {
  const uint32_t threshold = math::dropout_threshold(dropout.ratio);
  const float scale = static_cast<float>(1 / (1 - dropout.ratio));
  constexpr int64_t kBlocks = kTile / 4;  // blocks of four numbers, drawn together, one per lane
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t first = (dropout.first + (i0 + r) * dropout.row + j0) / 4;
    uint32_t random[4][kBlocks];
#pragma omp simd
    for (int64_t lane = 0; lane < kBlocks; ++lane) {
      const math::Philox4 block = math::philox_block(dropout.seed, dropout.stream, dropout.step,
                                                     static_cast<uint64_t>(first + lane));
      for (int k = 0; k < 4; ++k) random[k][lane] = block.v[k];
    }
    for (int64_t j = 0; j < kTile; ++j) {
      m[r * kTile + j] = math::dropout_keeps(random[j % 4][j / 4], threshold) ? scale : 0.0f;
    }
  }
}

void multiply_elements(int64_t count, const float* m, float* x) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) x[i] *= m[i];
}

int64_t mask_scratch(const HeadDims& d) { return d.drops ? kTile * kTile : 0; }

int64_t forward_scratch(const HeadDims& d) {
  const Sizes z(d);
  return 2 * z.k_rows * z.width + 2 * kTile * z.width + kTile * kTile + 2 * kTile + mask_scratch(d);
}

/// Processes one tile of scores: updates the running maximum and sum of each row, replaces s by
/// exp(s - max), and rescales the partial y to the new maximum.
void online_softmax(int64_t rows, int64_t columns, int64_t width, float* s, float* max, float* sum,
                    float* y) {
  for (int64_t r = 0; r < rows; ++r) {
    float* row = s + r * kTile;
    float greatest = max[r];
#pragma omp simd reduction(max : greatest)
    for (int64_t j = 0; j < columns; ++j) greatest = greatest < row[j] ? row[j] : greatest;
    float total = 0;
#pragma omp simd reduction(+ : total)
    for (int64_t j = 0; j < columns; ++j) {
      const float p = math::exp(row[j] - greatest);
      row[j] = p;
      total += p;
    }
    const float shrink = math::exp(max[r] - greatest);
    sum[r] = sum[r] * shrink + total;
    max[r] = greatest;
    float* y_row = y + r * width;
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) y_row[i] *= shrink;
  }
}

void forward(const HeadDims& d, const HeadDropout& dropout, int64_t tile_begin, int64_t tile_end,
             const HeadForward& o, float* scratch) {
  const Sizes z(d);
  float* keys = scratch;  // transposed tiles
  float* values = keys + z.k_rows * z.width;
  float* queries = values + z.k_rows * z.width;  // queries of one tile
  float* out = queries + kTile * z.width;
  float* s = out + kTile * z.width;
  float *max = s + kTile * kTile, *sum = max + kTile;
  float* dropped = sum + kTile;
  const TileRange tiles = keys_seen(d, o.seen, tile_begin, tile_end);
  for (int64_t j = tiles.begin; j < tiles.end; ++j) {
    const KeyTile t(d, j);
    pack_tile(t.keys, t.columns, d.D, o.k + t.j0 * d.kv_row, d.kv_row, keys + j * z.tile_of_keys());
    pack_rows(t.keys, t.keys, d.D, z.width, o.v + t.j0 * d.kv_row, d.kv_row, 1,
              values + t.j0 * z.width);
  }
  for (int64_t i = tile_begin; i < tile_end; ++i) {
    const QueryTile here(d, o.seen, i);
    const int64_t i0 = here.i0, rows = here.rows;
    pack_rows(here.queries, rows, d.D, z.width, o.q + i0 * d.q_row, d.q_row, d.scale, queries);
    std::memset(out, 0, static_cast<size_t>(rows * z.width) * sizeof(float));
    for (int64_t r = 0; r < rows; ++r) {
      max[r] = kMasked;
      sum[r] = 0;
    }
    for (int64_t j = here.tiles.begin; j < here.tiles.end; ++j) {
      const KeyTile t(d, j);
      multiply<false>(rows, t.columns, d.D, queries, z.width, 1, keys + j * z.tile_of_keys(), kTile,
                      s, kTile);
      mask(here, t, s);
      online_softmax(rows, t.columns, z.width, s, max, sum, out);
      if (d.drops) {
        draw_mask(dropout, i0, rows, t.j0, dropped);
        multiply_elements(rows * kTile, dropped, s);
      }
      multiply<true>(rows, z.width, t.keys, s, kTile, 1, values + t.j0 * z.width, z.width, out,
                     z.width);
    }
    for (int64_t r = 0; r < here.queries; ++r) {
      const bool sees = here.sees_any(r);
      unpack_rows(1, d.D, z.width, out + r * z.width, sees ? 1.0f / sum[r] : 0.0f,
                  o.y + (i0 + r) * d.y_row, 0);
      if (o.lse != nullptr) o.lse[i0 + r] = sees ? max[r] + std::log(sum[r]) : 0.0f;
    }
  }
}

/// scores[j] = q . k[j] for `count` keys, four at a time.
void multiply_keys(const HeadDims& d, const float* q, const float* k, int64_t count,
                   float* scores) {
  int64_t j = 0;
  for (; j + 4 <= count; j += 4) {
    const float *k0 = k + j * d.kv_row, *k1 = k0 + d.kv_row, *k2 = k1 + d.kv_row,
                *k3 = k2 + d.kv_row;
    float s0 = 0, s1 = 0, s2 = 0, s3 = 0;
#pragma omp simd reduction(+ : s0, s1, s2, s3)
    for (int64_t c = 0; c < d.D; ++c) {
      s0 += q[c] * k0[c];
      s1 += q[c] * k1[c];
      s2 += q[c] * k2[c];
      s3 += q[c] * k3[c];
    }
    scores[j] = s0;
    scores[j + 1] = s1;
    scores[j + 2] = s2;
    scores[j + 3] = s3;
  }
  for (; j < count; ++j) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t c = 0; c < d.D; ++c) sum += q[c] * k[j * d.kv_row + c];
    scores[j] = sum;
  }
}

/// y += sum over `count` values of p[j] * v[j], four at a time.
void add_values(const HeadDims& d, const float* p, const float* v, int64_t count, float* y) {
  int64_t j = 0;
  for (; j + 4 <= count; j += 4) {
    const float *v0 = v + j * d.kv_row, *v1 = v0 + d.kv_row, *v2 = v1 + d.kv_row,
                *v3 = v2 + d.kv_row;
    const float p0 = p[j], p1 = p[j + 1], p2 = p[j + 2], p3 = p[j + 3];
#pragma omp simd
    for (int64_t c = 0; c < d.D; ++c) {
      y[c] += p0 * v0[c] + p1 * v1[c] + p2 * v2[c] + p3 * v3[c];
    }
  }
  for (; j < count; ++j) {
    const float p_j = p[j];
#pragma omp simd
    for (int64_t c = 0; c < d.D; ++c) y[c] += p_j * v[j * d.kv_row + c];
  }
}

/// A row for each query of each head of the group: its scaled query and its partial result.
int64_t few_scratch(const HeadDims& d) {
  return round_up(d.group * d.Tq * (2 * d.D + 2), 16) + 2 * kTile;
}

/// Adds the keys of one tile that a query sees to its result.
void add_tile(const HeadDims& d, const HeadForward& o, const math::KeyRange& keys, const float* q,
              const float* dropped, float* s, float* max, float* sum, float* y) {
  const int64_t count = keys.end - keys.begin;
  multiply_keys(d, q, o.k + keys.begin * d.kv_row, count, s);
  online_softmax(1, count, d.D, s, max, sum, y);
  if (d.drops) multiply_elements(count, dropped, s);
  add_values(d, s, o.v + keys.begin * d.kv_row, count, y);
}

void forward_few(const HeadDims& d, const HeadDropout& dropout, const HeadForward& o,
                 float* scratch) {
  const int64_t rows = d.group * d.Tq;
  float *queries = scratch, *out = queries + rows * d.D, *max = out + rows * d.D, *sum = max + rows;
  float* s = scratch + few_scratch(d) - 2 * kTile;
  float* dropped = s + kTile;
  math::KeyRange seen[kFewQueries];
  TileRange tiles;
  for (int64_t i = 0; i < d.Tq; ++i) {
    seen[i] = keys_of(d, o.seen, i);
    tiles.add(seen[i]);
  }
  for (int64_t r = 0; r < rows; ++r) {
    pack_rows(1, 1, d.D, d.D, o.q + r / d.Tq * d.D + r % d.Tq * d.q_row, 0, d.scale,
              queries + r * d.D);
    max[r] = kMasked;
    sum[r] = 0;
  }
  std::memset(out, 0, static_cast<size_t>(rows * d.D) * sizeof(float));
  for (int64_t j0 = tiles.begin * kTile; j0 < tiles.end * kTile; j0 += kTile) {
    for (int64_t r = 0; r < rows; ++r) {
      math::KeyRange keys = seen[r % d.Tq];
      keys.begin = keys.begin < j0 ? j0 : keys.begin;
      keys.end = smaller(keys.end, j0 + kTile);
      if (keys.begin >= keys.end) continue;
      if (d.drops) draw_mask(dropout, r, 1, j0, dropped);
      add_tile(d, o, keys, queries + r * d.D, dropped + (keys.begin - j0), s, max + r, sum + r,
               out + r * d.D);
    }
  }
  for (int64_t r = 0; r < rows; ++r) {
    const math::KeyRange& keys = seen[r % d.Tq];
    const bool sees = keys.begin < keys.end;
    unpack_rows(1, d.D, 0, out + r * d.D, sees ? 1.0f / sum[r] : 0.0f,
                o.y + r / d.Tq * d.D + r % d.Tq * d.y_row, 0);
    if (o.lse != nullptr) o.lse[r] = sees ? max[r] + std::log(sum[r]) : 0.0f;
  }
}

int64_t backward_scratch(const HeadDims& d) {
  const Sizes z(d);
  return 5 * z.k_rows * z.width + 3 * kTile * z.width + 2 * kTile * kTile + 2 * kTile +
         mask_scratch(d);
}

/// Changes s to p = exp(s - lse), and dp to ds = p * (dp - delta).
void softmax_backward(int64_t rows, int64_t columns, const float* lse, const float* delta, float* s,
                      float* dp) {
  for (int64_t r = 0; r < rows; ++r) {
    float *p_row = s + r * kTile, *ds_row = dp + r * kTile;
    const float log_sum = lse[r], shift = delta[r];
#pragma omp simd
    for (int64_t j = 0; j < columns; ++j) {
      const float p = math::exp(p_row[j] - log_sum);
      p_row[j] = p;
      ds_row[j] = p * (ds_row[j] - shift);
    }
  }
}

/// The scratch memory of backward.
struct BackwardScratch {
  float* keys;         // not transposed, for dq
  float* keys_across;  // transposed tiles
  float *values_across, *dkeys, *dvalues;
  float *queries, *dout, *dqueries;  // of one tile, like all that follow
  float *s, *ds, *log_sum, *delta, *dropped;
  BackwardScratch(const Sizes& z, float* scratch) {
    const int64_t all = z.k_rows * z.width, tile = kTile * z.width;
    keys = scratch;
    keys_across = keys + all;
    values_across = keys_across + all;
    dkeys = values_across + all;
    dvalues = dkeys + all;
    queries = dvalues + all;
    dout = queries + tile;
    dqueries = dout + tile;
    s = dqueries + tile;
    ds = s + kTile * kTile;
    log_sum = ds + kTile * kTile;
    delta = log_sum + kTile;
    dropped = delta + kTile;
  }
};

/// Fills delta and log_sum of a tile of queries.
void prepare_rows(const HeadDims& d, const QueryTile& here, const HeadBackward& o,
                  const BackwardScratch& w) {
  for (int64_t r = 0; r < here.rows; ++r) {
    float sum = 0;
    if (r < here.queries) {
      const float* y_row = o.y + (here.i0 + r) * d.y_row;
      const float* dy_row = o.dy + (here.i0 + r) * d.y_row;
#pragma omp simd reduction(+ : sum)
      for (int64_t c = 0; c < d.D; ++c) sum += y_row[c] * dy_row[c];
    }
    w.delta[r] = sum;
    w.log_sum[r] = r < here.queries ? o.lse[here.i0 + r] : -kMasked;  // padding rows get p = 0
  }
}

/// Adds the gradients of one tile of queries of one head to dkeys and dvalues, and writes dq.
void backward_tile(const HeadDims& d, const HeadDropout& dropout, const HeadBackward& o,
                   int64_t index, const BackwardScratch& w) {
  const Sizes z(d);
  const QueryTile here(d, o.seen, index);
  const int64_t i0 = here.i0, rows = here.rows;
  pack_rows(here.queries, rows, d.D, z.width, o.q + i0 * d.q_row, d.q_row, d.scale, w.queries);
  pack_rows(here.queries, rows, d.D, z.width, o.dy + i0 * d.y_row, d.y_row, 1, w.dout);
  std::memset(w.dqueries, 0, static_cast<size_t>(rows * z.width) * sizeof(float));
  prepare_rows(d, here, o, w);
  for (int64_t j = here.tiles.begin; j < here.tiles.end; ++j) {
    const KeyTile t(d, j);
    const int64_t key_rows = round_up(t.keys, kRowStep), tile = j * z.tile_of_keys();
    multiply<false>(rows, t.columns, d.D, w.queries, z.width, 1, w.keys_across + tile, kTile, w.s,
                    kTile);
    multiply<false>(rows, t.columns, d.D, w.dout, z.width, 1, w.values_across + tile, kTile, w.ds,
                    kTile);
    mask(here, t, w.s);
    if (d.drops) {
      draw_mask(dropout, i0, rows, t.j0, w.dropped);
      multiply_elements(rows * kTile, w.dropped, w.ds);
    }
    softmax_backward(rows, t.columns, w.log_sum, w.delta, w.s, w.ds);
    if (d.drops) multiply_elements(rows * kTile, w.dropped, w.s);
    multiply<true>(key_rows, z.width, rows, w.s, 1, kTile, w.dout, z.width,
                   w.dvalues + t.j0 * z.width, z.width);
    multiply<true>(key_rows, z.width, rows, w.ds, 1, kTile, w.queries, z.width,
                   w.dkeys + t.j0 * z.width, z.width);
    multiply<true>(rows, z.width, t.keys, w.ds, kTile, 1, w.keys + t.j0 * z.width, z.width,
                   w.dqueries, z.width);
  }
  if (o.dq != nullptr) {
    unpack_rows(here.queries, d.D, z.width, w.dqueries, d.scale, o.dq + i0 * d.q_row, d.q_row);
  }
}

void backward(const HeadDims& d, const HeadDropout& dropout, const HeadBackward& o,
              float* scratch) {
  const Sizes z(d);
  const BackwardScratch w(z, scratch);
  const TileRange tiles = keys_seen(d, o.seen, 0, z.q_tiles);
  for (int64_t j = tiles.begin; j < tiles.end; ++j) {
    const KeyTile t(d, j);
    const float *k_tile = o.k + t.j0 * d.kv_row, *v_tile = o.v + t.j0 * d.kv_row;
    pack_rows(t.keys, t.keys, d.D, z.width, k_tile, d.kv_row, 1, w.keys + t.j0 * z.width);
    pack_tile(t.keys, t.columns, d.D, k_tile, d.kv_row, w.keys_across + j * z.tile_of_keys());
    pack_tile(t.keys, t.columns, d.D, v_tile, d.kv_row, w.values_across + j * z.tile_of_keys());
  }
  std::memset(w.dkeys, 0, static_cast<size_t>(2 * z.k_rows * z.width) * sizeof(float));
  for (int64_t i = 0; i < z.q_tiles; ++i) backward_tile(d, dropout, o, i, w);
  if (o.dk != nullptr) unpack_rows(d.Tk, d.D, z.width, w.dkeys, 1, o.dk, o.dkv_row);
  if (o.dv != nullptr) unpack_rows(d.Tk, d.D, z.width, w.dvalues, 1, o.dv, o.dkv_row);
}

void add_part(const HeadDims& d, const float* part, float* sum) {
  for (int64_t j = 0; j < d.Tk; ++j, part += d.D, sum += d.kv_row) {
#pragma omp simd
    for (int64_t c = 0; c < d.D; ++c) sum[c] += part[c];
  }
}

}  // namespace

const AttentionLoops& TRAINYARD_VARIANT(attention_loops)();
const AttentionLoops& TRAINYARD_VARIANT(attention_loops)() {
  static constexpr AttentionLoops kLoops = {forward_scratch, few_scratch, backward_scratch, forward,
                                            forward_few,     backward,    add_part};
  return kLoops;
}

}  // namespace trainyard::kernels::cpu
