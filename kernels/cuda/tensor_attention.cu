// Access   a block of four warps computes 64 queries (forward, dq) or 64 keys (dk, dv) of a head,
//          16 in each warp, from 32 positions of the other kind at a time. Scores and results stay
//          in registers: the fragment that holds scores after one product is, with its columns in
//          another order, an operand of the next. Operands are rounded to TF32 when they are copied
//          to shared memory, 64 columns at a time (at most 48 KiB). The block's own rows are copied
//          once if a head has at most 64 columns. Tiles that no query of a block sees are skipped.
// Time     limited by shared memory: a product of 16 x 8 x 8 reads 384 B for scores and 256 B for
//          results, on average 2.5 cycles at 128 B a cycle, 40 % of an H100's 495 TFLOP/s in TF32.
//          Not run on a GPU.
#include "kernels/cuda/tensor_attention.h"

#include <algorithm>
#include <type_traits>

#include "kernels/cuda/attention_parts.h"
#include "kernels/cuda/block.h"
#include "kernels/cuda/mma.h"
#include "kernels/math/elementary.h"

namespace trainyard::kernels::cuda {
namespace {

using namespace attention;

constexpr int kThreads = 128;
constexpr int kWarpRows = 16;                    // rows of a warp, as in one product
constexpr int kRows = 64;                        // rows of a block
constexpr int kPositions = 32;                   // columns of scores that are computed at a time
constexpr int kPart = 64;                        // columns of operands and results in one part
constexpr int kWidth = 8;                        // columns of one product
constexpr int kCopied = kThreads / (kPart / 4);  // rows that the block copies together
constexpr int kScoreTiles = kPositions / kWidth;
constexpr int kResultTiles = kPart / kWidth;
constexpr int64_t kColumnsMax = 2 * kPart;
static_assert(kThreads / kWarp * kWarpRows == kRows);

using Scores = float[kScoreTiles][4];
using Results = float[kResultTiles][4];

/// The row group and column pair of this thread in a product (mma.h).
TRAINYARD_DEVICE int group() { return static_cast<int>(threadIdx.x) % kWarp / 4; }
TRAINYARD_DEVICE int pair() { return static_cast<int>(threadIdx.x) % 4; }
/// The block's row of this thread's first two elements; the other two are eight rows below.
TRAINYARD_DEVICE int own_row() {
  return static_cast<int>(threadIdx.x) / kWarp * kWarpRows + group();
}

/// Index of an element in a copied tile of kPart columns, with an XOR swizzle: in both orders in
/// which a warp reads it, along rows and down columns, its threads read different banks.
TRAINYARD_DEVICE int at(int row, int column) {
  return row * kPart + (column ^ (row / 2 % 4 * 8) ^ (row % 2 * 16));
}

/// Copies `count` rows from `from` on, `row` elements apart, as far as they exist. load(In,
/// element) reads four elements; all loads are issued before the first store.
template <typename Load>
TRAINYARD_DEVICE void copy_fours(const In& from, int64_t row, int top, int exist, int column,
                                 float* tile, const Load& load) {
  Four fours[kPositions / kCopied];
  TRAINYARD_UNROLL
  for (int pass = 0; pass < kPositions / kCopied; ++pass) {
    const bool exists = top + pass * kCopied < exist;
    fours[pass] = exists ? load(from, pass * kCopied * row) : Four{};
  }
  TRAINYARD_UNROLL
  for (int pass = 0; pass < kPositions / kCopied; ++pass) {
    for (float& v : fours[pass].v) v = round_to_tf32(v);
    *reinterpret_cast<Four*>(tile + at(top + pass * kCopied, column)) = fours[pass];
  }
}

/// Copies one part of kCount rows from `first` on, rounded to TF32; elements outside are 0. Each
/// thread copies four columns of every eighth row.
template <int kCount>
TRAINYARD_DEVICE void copy_rows(const Sizes& s, const Rows& x, int64_t first, int part,
                                float* tile) {
  const int top = static_cast<int>(threadIdx.x) / (kPart / 4);
  const int column = static_cast<int>(threadIdx.x) % (kPart / 4) * 4;
  const int64_t column_of_all = int64_t{part} * kPart + column;
  for (int begin = 0; begin < kCount; begin += kPositions) {
    const int64_t left = column_of_all < s.D ? x.count - first - begin : 0;
    const int exist = left < kPositions ? static_cast<int>(left) : kPositions;
    const In from = x.base + ((first + begin + top) * x.row + column_of_all);
    float* const to = tile + begin * kPart;
    if (s.fours && from.format == Format::kF32) {
      copy_fours(from, x.row, top, exist, column, to, [](const In& in, int64_t i) {
        return *reinterpret_cast<const Four*>(static_cast<const float*>(in.data) + i);
      });
    } else if (s.fours && from.format == Format::kBf16) {
      copy_fours(from, x.row, top, exist, column, to,
                 [](const In& in, int64_t i) { return load4_as<math::Bf16>(in.data, i); });
    } else if (s.fours) {
      copy_fours(from, x.row, top, exist, column, to,
                 [](const In& in, int64_t i) { return load4_as<math::F16>(in.data, i); });
    } else {
      const int columns = static_cast<int>(s.D - column_of_all < 4 ? s.D - column_of_all : 4);
      copy_fours(from, x.row, top, exist, column, to, [columns](const In& in, int64_t i) {
        Four f{};
        for (int k = 0; k < 4; ++k) {
          if (k < columns) f.v[k] = in[i + k];
        }
        return f;
      });
    }
  }
}

/// The number of columns of a part that exist.
TRAINYARD_DEVICE int columns_of(const Sizes& s, int part) {
  const int64_t left = s.D - int64_t{part} * kPart;
  return static_cast<int>(left < kPart ? left : kPart);
}

/// scores[i, j] += left[i] . right[j] over one part's columns. The order of the columns within a
/// sum does not matter as long as both operands have the same: a thread's fragments of two products
/// are four adjacent columns.
TRAINYARD_DEVICE void add_scores(const float* left, const float* right, int columns,
                                 Scores& scores) {
  for (int k = 0; k < columns; k += 2 * kWidth) {
    const int column = k + 4 * pair();
    const Four top = four_of(left + at(own_row(), column));
    const Four bottom = four_of(left + at(own_row() + 8, column));
    TRAINYARD_UNROLL
    for (int tile = 0; tile < kScoreTiles; ++tile) {
      const Four b = four_of(right + at(kWidth * tile + group(), column));
      multiply_accumulate_tf32(scores[tile], {top.v[0], bottom.v[0], top.v[1], bottom.v[1]},
                               {b.v[0], b.v[1]});
      multiply_accumulate_tf32(scores[tile], {top.v[2], bottom.v[2], top.v[3], bottom.v[3]},
                               {b.v[2], b.v[3]});
    }
  }
}

/// results[i, c] += sum over j of scores[i, j] right[j, c], for one part's columns. Product k of a
/// tile takes column 2k of the scores as its column k, and column 2k + 1 as its column k + 4, which
/// is where a thread has them.
TRAINYARD_DEVICE void add_results(const Scores& scores, const float* right, int columns,
                                  Results& results) {
  TRAINYARD_UNROLL
  for (int tile = 0; tile < kScoreTiles; ++tile) {
    const float(&p)[4] = scores[tile];
    const float a[4] = {round_to_tf32(p[0]), round_to_tf32(p[2]), round_to_tf32(p[1]),
                        round_to_tf32(p[3])};
    const int position = kWidth * tile + 2 * pair();
    TRAINYARD_UNROLL
    for (int j = 0; j < kResultTiles; ++j) {
      if (kWidth * j >= columns) continue;
      const int column = kWidth * j + group();
      multiply_accumulate_tf32(results[j], a,
                               {right[at(position, column)], right[at(position + 1, column)]});
    }
  }
}

/// Reduces over the four threads that share rows; all of them get the result.
template <typename Op>
TRAINYARD_DEVICE float row_reduce(float value, Op op) {
  value = op(value, __shfl_xor_sync(0xFFFFFFFFu, value, 1));
  return op(value, __shfl_xor_sync(0xFFFFFFFFu, value, 2));
}

/// Dropout's factors of this thread's elements of one tile whose rows are queries. `query` is the
/// thread's first row, counted over all heads, and `key` the tile's first column. Two threads share
/// each block of numbers: one draws that of the first row, the other that of the second.
TRAINYARD_DEVICE void draw_by_query(const Drawn& drawn, int64_t query, int64_t key, float (&m)[4]) {
  for (float& v : m) v = 1;
  if (!drawn.any) return;
  const bool odd = pair() % 2 != 0;
  const uint32_t mine = kept_keys(drawn, query + (odd ? 8 : 0), key + pair() / 2 * 4);
  const uint32_t other = __shfl_xor_sync(0xFFFFFFFFu, mine, 1);
  const uint32_t top = (odd ? other >> 2 : mine), bottom = (odd ? mine >> 2 : other);
  m[0] = top & 1u ? drawn.scale : 0.0f;
  m[1] = top & 2u ? drawn.scale : 0.0f;
  m[2] = bottom & 1u ? drawn.scale : 0.0f;
  m[3] = bottom & 2u ? drawn.scale : 0.0f;
}

/// Draws the factors of a tile whose rows are keys, like draw_by_query(): `key` is the thread's
/// first row, and `query` the tile's first column, counted over all heads. Each of the four threads
/// that share a block of numbers draws it for one of their four elements.
TRAINYARD_DEVICE void draw_by_key(const Drawn& drawn, int64_t query, int64_t key, float (&m)[4]) {
  for (float& v : m) v = 1;
  if (!drawn.any) return;
  const int own = group() % 4;
  const uint32_t mine = kept_keys(drawn, query + 2 * pair() + own % 2, key - own + own / 2 * 8);
  uint32_t all = mine << (4 * own);
  all |= __shfl_xor_sync(0xFFFFFFFFu, all, 4);
  all |= __shfl_xor_sync(0xFFFFFFFFu, all, 8);
  for (int i = 0; i < 4; ++i) m[i] = all >> (4 * i + own) & 1u ? drawn.scale : 0.0f;
}

/// Writes one part of this thread's two rows, multiplied by `factors`. `y` points to the block's
/// first row, of `rows` that exist, `stride` elements apart.
TRAINYARD_DEVICE void store(const Sizes& s, const Results& results, int part,
                            const float (&factors)[2], const Out& y, int64_t rows, int64_t stride) {
  TRAINYARD_UNROLL
  for (int j = 0; j < kResultTiles; ++j) {
    TRAINYARD_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int64_t row = own_row() + i / 2 * 8;
      const int64_t column = int64_t{part} * kPart + kWidth * j + 2 * pair() + i % 2;
      if (row < rows && column < s.D) {
        y.set(row * stride + column, results[j][i] * factors[i / 2]);
      }
    }
  }
}

template <int kParts>
struct alignas(16) ForwardShared {
  float queries[kParts][kRows * kPart];
  float others[kParts][kPositions * kPart];  // keys, then values
};

/// The running maximum and sum of a thread's two rows; the sum is over this thread's columns.
struct Running {
  float max[2] = {Max::kIdentity, Max::kIdentity};
  float sum[2] = {0, 0};
};

/// Replaces a tile row's scores by exp(score - maximum), and returns the
/// correction of earlier sums and results.
template <bool kLimited>
TRAINYARD_DEVICE float exponentiate(const Sizes& s, const Sight<kLimited>& seen, int64_t key,
                                    int half, Scores& scores, Running& running) {
  float largest = Max::kIdentity;
  TRAINYARD_UNROLL
  for (int tile = 0; tile < kScoreTiles; ++tile) {
    TRAINYARD_UNROLL
    for (int i = 0; i < 2; ++i) {
      float& score = scores[tile][2 * half + i];
      score *= s.scale;
      if (seen.has(key + kWidth * tile + 2 * pair() + i)) largest = Max()(score, largest);
    }
  }
  largest = Max()(row_reduce(largest, Max()), running.max[half]);
  const float correction = math::exp(running.max[half] - largest);
  running.max[half] = largest;
  running.sum[half] *= correction;
  TRAINYARD_UNROLL
  for (int tile = 0; tile < kScoreTiles; ++tile) {
    TRAINYARD_UNROLL
    for (int i = 0; i < 2; ++i) {
      float& score = scores[tile][2 * half + i];
      const bool sees = seen.has(key + kWidth * tile + 2 * pair() + i);
      score = sees ? math::exp(score - largest) : 0.0f;
      running.sum[half] += score;
    }
  }
  return correction;
}

template <int kParts, bool kLimited>
TRAINYARD_KERNEL_OF(kThreads, kParts == 1 && !kLimited ? 3 : 2)
void tensor_forward(Sizes s, Drawn drawn, In q, In k, In v, Out y, float* lse) {
  TRAINYARD_SHARED(ForwardShared<kParts>, shared);
  const auto [head, first] = tile_of_queries(s, kRows);
  const Rows keys = s.keys<kLimited>(k, head), values = s.keys<kLimited>(v, head);
  for (int part = 0; part < kParts; ++part) {
    copy_rows<kRows>(s, s.queries(q, head), first, part, shared.queries[part]);
  }
  Results results[kParts] = {};
  Running running;
  const int64_t query = first + own_row();
  const SeenRange all = seen_by_tile<kLimited>(s, head, first, kRows);
  for (int64_t key = all.begin / kPositions * kPositions; key < all.end; key += kPositions) {
    __syncthreads();  // the previous values have been read
    for (int part = 0; part < kParts; ++part) {
      copy_rows<kPositions>(s, keys, key, part, shared.others[part]);
    }
    __syncthreads();
    Scores scores = {};
    for (int part = 0; part < kParts; ++part) {
      add_scores(shared.queries[part], shared.others[part], columns_of(s, part), scores);
    }
    TRAINYARD_UNROLL
    for (int half = 0; half < 2; ++half) {
      const float correction =
          exponentiate(s, Sight<kLimited>(s, head, query + 8 * half), key, half, scores, running);
      TRAINYARD_UNROLL
      for (int part = 0; part < kParts; ++part) {
        TRAINYARD_UNROLL
        for (int j = 0; j < kResultTiles; ++j) {
          for (int i = 0; i < 2; ++i) results[part][j][2 * half + i] *= correction;
        }
      }
    }
    TRAINYARD_UNROLL
    for (int tile = 0; tile < kScoreTiles; ++tile) {
      float m[4];
      draw_by_query(drawn, head * s.Tq + query, key + kWidth * tile, m);
      for (int i = 0; i < 4; ++i) scores[tile][i] *= m[i];
    }
    __syncthreads();  // the keys have been read
    for (int part = 0; part < kParts; ++part) {
      copy_rows<kPositions>(s, values, key, part, shared.others[part]);
    }
    __syncthreads();
    TRAINYARD_UNROLL
    for (int part = 0; part < kParts; ++part) {
      add_results(scores, shared.others[part], columns_of(s, part), results[part]);
    }
  }
  float factors[2];
  for (int half = 0; half < 2; ++half) {
    const float total = row_reduce(running.sum[half], Sum());
    factors[half] = inverse_of(total);
    if (lse != nullptr && pair() == 0 && query + 8 * half < s.Tq) {
      lse[head * s.Tq + query + 8 * half] = log_sum_exp(running.max[half], total);
    }
  }
  TRAINYARD_UNROLL
  for (int part = 0; part < kParts; ++part) {
    store(s, results[part], part, factors, y + s.y_at(head) + first * s.H * s.D, s.Tq - first,
          s.H * s.D);
  }
}

/// For the gradients: a block's own rows of two operands, and the other positions of two operands.
struct alignas(16) GradientShared {
  float own[2][kRows * kPart];
  float other[2][kPositions * kPart];
};

/// The rows of a gradient kernel: products[i] are own[i] . other[i]. A block has the own rows from
/// `first` on.
struct GradientRows {
  Rows own[2], other[2];
  int64_t first;
};

/// Adds the products of the block's rows and kPositions others, from `position` on. A block's own
/// rows are copied again for every part unless there is only one.
template <int kParts>
TRAINYARD_DEVICE void multiply_both(const Sizes& s, GradientShared& shared,
                                    const GradientRows& rows, int64_t position, bool is_first,
                                    Scores (&products)[2]) {
  for (int part = 0; part < kParts; ++part) {
    __syncthreads();  // the previous tiles have been read
    TRAINYARD_UNROLL
    for (int i = 0; i < 2; ++i) {
      if (kParts > 1 || is_first) copy_rows<kRows>(s, rows.own[i], rows.first, part, shared.own[i]);
      copy_rows<kPositions>(s, rows.other[i], position, part, shared.other[i]);
    }
    __syncthreads();
    TRAINYARD_UNROLL
    for (int i = 0; i < 2; ++i) {
      add_scores(shared.own[i], shared.other[i], columns_of(s, part), products[i]);
    }
  }
}

/// Copies other operand `i` again if multiply_both() has replaced this part.
template <int kParts>
TRAINYARD_DEVICE void copy_again(const Sizes& s, GradientShared& shared, const Rows& other,
                                 int64_t position, int part, int i) {
  if (kParts == 1) return;
  __syncthreads();  // the previous part has been read
  copy_rows<kPositions>(s, other, position, part, shared.other[i]);
  __syncthreads();
}

template <int kParts, bool kLimited>
TRAINYARD_KERNEL_OF(kThreads, 2)
void tensor_query_gradient(Sizes s, Drawn drawn, In q, In k, In v, const float* lse,
                           const float* delta, In dy, Out dq) {
  TRAINYARD_SHARED(GradientShared, shared);
  const auto [head, first] = tile_of_queries(s, kRows);
  const GradientRows rows{{s.queries(q, head), s.results(dy, head)},
                          {s.keys<kLimited>(k, head), s.keys<kLimited>(v, head)},
                          first};
  Results results[kParts] = {};
  const int64_t query = first + own_row();
  float row_lse[2], row_delta[2];
  for (int half = 0; half < 2; ++half) {
    const bool exists = query + 8 * half < s.Tq;
    row_lse[half] = exists ? lse[head * s.Tq + query + 8 * half] : 0.0f;
    row_delta[half] = exists ? delta[head * s.Tq + query + 8 * half] : 0.0f;
  }
  const SeenRange all = seen_by_tile<kLimited>(s, head, first, kRows);
  const int64_t start = all.begin / kPositions * kPositions;
  for (int64_t key = start; key < all.end; key += kPositions) {
    Scores products[2] = {};
    multiply_both<kParts>(s, shared, rows, key, key == start, products);
    const Sight<kLimited> seen[2] = {{s, head, query}, {s, head, query + 8}};
    TRAINYARD_UNROLL
    for (int tile = 0; tile < kScoreTiles; ++tile) {
      float m[4];
      draw_by_query(drawn, head * s.Tq + query, key + kWidth * tile, m);
      TRAINYARD_UNROLL
      for (int i = 0; i < 4; ++i) {
        const bool sees = seen[i / 2].has(key + kWidth * tile + 2 * pair() + i % 2);
        const float score = products[0][tile][i];
        const float p = sees ? math::exp(s.scale * score - row_lse[i / 2]) : 0.0f;
        products[0][tile][i] = p * (m[i] * products[1][tile][i] - row_delta[i / 2]);
      }
    }
    TRAINYARD_UNROLL
    for (int part = 0; part < kParts; ++part) {
      copy_again<kParts>(s, shared, rows.other[0], key, part, 0);
      add_results(products[0], shared.other[0], columns_of(s, part), results[part]);
    }
  }
  TRAINYARD_UNROLL
  for (int part = 0; part < kParts; ++part) {
    store(s, results[part], part, {s.scale, s.scale}, dq + s.q_at(head) + first * s.q_row,
          s.Tq - first, s.q_row);
  }
}

// In this kernel the rows of a tile are keys, and the columns are queries.
template <int kParts, bool kLimited>
TRAINYARD_KERNEL_OF(kThreads, kParts == 1 ? 2 : 1)
void tensor_key_gradient(Sizes s, Drawn drawn, In q, In k, In v, const float* lse,
                         const float* delta, In dy, Out dk, Out dv) {
  TRAINYARD_SHARED(GradientShared, shared);
  const auto [first_head, first] = tile_of_keys<kLimited>(s, kRows);
  Results of_keys[kParts] = {}, of_values[kParts] = {};
  const int64_t key = first + own_row();
  bool is_first = true;
  for_group<kLimited>(s, first_head, [&](int64_t head) {
    const GradientRows rows{{s.keys<kLimited>(k, head), s.keys<kLimited>(v, head)},
                            {s.queries(q, head), s.results(dy, head)},
                            first};
    for (int64_t query = first_query<kLimited>(s, first); query < s.Tq; query += kPositions) {
      if (!tiles_meet<kLimited>(s, head, query, kPositions, first, first + kRows)) continue;
      Scores products[2] = {};
      multiply_both<kParts>(s, shared, rows, query, is_first, products);
      is_first = false;
      TRAINYARD_UNROLL
      for (int tile = 0; tile < kScoreTiles; ++tile) {
        float m[4];
        draw_by_key(drawn, head * s.Tq + query + kWidth * tile, key, m);
        TRAINYARD_UNROLL
        for (int i = 0; i < 4; ++i) {
          const int64_t column = query + kWidth * tile + 2 * pair() + i % 2;
          const bool sees = Sight<kLimited>(s, head, column).has(key + i / 2 * 8);
          const float score = products[0][tile][i];
          const float p = sees ? math::exp(s.scale * score - lse[head * s.Tq + column]) : 0.0f;
          const float d = sees ? delta[head * s.Tq + column] : 0.0f;
          products[0][tile][i] = m[i] * p;
          products[1][tile][i] = p * (m[i] * products[1][tile][i] - d);
        }
      }
      TRAINYARD_UNROLL
      for (int part = 0; part < kParts; ++part) {
        copy_again<kParts>(s, shared, rows.other[1], query, part, 1);
        if (dv) add_results(products[0], shared.other[1], columns_of(s, part), of_values[part]);
        copy_again<kParts>(s, shared, rows.other[0], query, part, 0);
        if (dk) add_results(products[1], shared.other[0], columns_of(s, part), of_keys[part]);
      }
    }
  });
  const int64_t to = s.kv_at<kLimited>(first_head) + first * s.kv_row;
  TRAINYARD_UNROLL
  for (int part = 0; part < kParts; ++part) {
    if (dk) store(s, of_keys[part], part, {s.scale, s.scale}, dk + to, s.Tk - first, s.kv_row);
    if (dv) store(s, of_values[part], part, {1, 1}, dv + to, s.Tk - first, s.kv_row);
  }
}

/// Calls f(parts, limited) with integral constants.
template <typename F>
void with_parts(const Sizes& s, const F& f) {
  with_limits(s, [&](auto limited) {
    if (s.D <= kPart) {
      f(std::integral_constant<int, 1>(), limited);
    } else {
      f(std::integral_constant<int, 2>(), limited);
    }
  });
}

Grid grid_of(int64_t heads, int64_t positions) {
  return {heads * tiles_of(positions, kRows), kThreads};
}

}  // namespace

bool takes_tensor_attention(const AttentionDims& d) { return d.tf32 && d.D <= kColumnsMax; }

void tensor_attention_forward(const AttentionDims& d, const AttentionOperands<Views>& o, Run run) {
  const Sizes s = sizes_of(d, o.seen, {o.q, o.k, o.v, o.y});
  with_parts(s, [&](auto parts, auto limited) {
    launch(grid_of(d.N * d.H, d.Tq), run.stream, tensor_forward<parts.value, limited.value>, s,
           drawn_of(d, o.step), o.q, o.k, o.v, o.y, o.lse);
  });
}

void tensor_attention_backward(const AttentionDims& d, const AttentionGradOperands<Views>& o,
                               const float* delta, Run run) {
  const Sizes s = sizes_of(d, o.seen, {o.q, o.k, o.v, o.y, o.dy, o.dq, o.dk, o.dv});
  const Drawn drawn = drawn_of(d, o.step);
  with_parts(s, [&](auto parts, auto limited) {
    if (o.dq) {
      launch(grid_of(d.N * d.H, d.Tq), run.stream,
             tensor_query_gradient<parts.value, limited.value>, s, drawn, o.q, o.k, o.v, o.lse,
             delta, o.dy, o.dq);
    }
    if (o.dk || o.dv) {
      launch(grid_of(d.N * d.key_heads(), d.Tk), run.stream,
             tensor_key_gradient<parts.value, limited.value>, s, drawn, o.q, o.k, o.v, o.lse, delta,
             o.dy, o.dk, o.dv);
    }
  });
}

}  // namespace trainyard::kernels::cuda
