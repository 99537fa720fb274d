// kernels/cpu/simd/attention.h: attention of one head, in tiles; see simd.h and
// kernels/attention.h.
#pragma once

#include <cstdint>

#include "kernels/math/dropout.h"
#include "kernels/math/key_range.h"

namespace trainyard::kernels::cpu {

/// One head of keys and values of one sequence, and the `group` adjacent heads of queries that read
/// it. The stride between rows is q_row (q), kv_row (k and v), or y_row (y and dy).
struct HeadDims {
  int64_t Tq, Tk, D, group;
  int64_t q_row, kv_row, y_row;
  float scale;
  bool drops;  // whether there is dropout
  math::KeyRules rules;
};

/// The parts of SeenKeys that limit which keys the queries of one sequence see. Each may be
/// nullptr.
struct HeadSeen {
  const int32_t *positions, *key_count;
};

/// Dropout of the probabilities of the first head of queries, only used if HeadDims::drops: pair
/// (i, j) of head h of the group uses random number first + (h * Tq + i) * row + j.
struct HeadDropout {
  double ratio;
  uint64_t seed, step;
  uint32_t stream;
  int64_t first, row;  // multiples of 4
};

/// Operands (kernels/attention.h) of one head of queries, or where it says so of the first head of
/// the group. The outputs lse, dq, dk and dv may be nullptr.
struct HeadForward {
  const float *q, *k, *v;
  float *y, *lse;
  HeadSeen seen;
};
struct HeadBackward {
  const float *q, *k, *v, *y, *lse, *dy;
  float *dq, *dk, *dv;
  int64_t dkv_row;  // the stride between rows of dk and dv
  HeadSeen seen;
};

constexpr int64_t kAttentionTile = 64;  // queries, and keys, in one tile
constexpr int64_t kFewQueries = 8;      // so few are computed without copies of the keys

struct AttentionLoops {
  // The number of floats of scratch memory, a multiple of 16.
  int64_t (*forward_scratch)(const HeadDims& d);
  int64_t (*few_scratch)(const HeadDims& d);
  int64_t (*backward_scratch)(const HeadDims& d);
  // Computes the queries of tiles [tile_begin, tile_end) of one head.
  void (*forward)(const HeadDims& d, const HeadDropout& dropout, int64_t tile_begin,
                  int64_t tile_end, const HeadForward& o, float* scratch);
  // Computes a whole group that has at most kFewQueries queries in each head; every key and value
  // is read once for all of them.
  void (*forward_few)(const HeadDims& d, const HeadDropout& dropout, const HeadForward& o,
                      float* scratch);
  // Computes one head; dk and dv are its own parts of the group's sums.
  void (*backward)(const HeadDims& d, const HeadDropout& dropout, const HeadBackward& o,
                   float* scratch);
  // dk and dv += those of another head, which are dense [Tk, D].
  void (*add_part)(const HeadDims& d, const float* part, float* sum);
};
const AttentionLoops& attention_loops();

}  // namespace trainyard::kernels::cpu
