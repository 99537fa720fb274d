// kernels/cpu/simd/attention.h: attention of one head, in tiles; see simd.h and
// kernels/attention.h.
#pragma once

#include <cstdint>

#include "kernels/math/dropout.h"

namespace trainyard::kernels::cpu {

/// One head of one sequence. The stride between rows is q_row (q), kv_row (k and v), or y_row (y
/// and dy).
struct HeadDims {
  int64_t Tq, Tk, D;
  int64_t q_row, kv_row, y_row;
  float scale;
  bool causal;
  bool drops;  // whether there is dropout
};

/// Dropout of one head's probabilities, only used if HeadDims::drops: pair (i, j) uses random
/// number first + i * row + j.
struct HeadDropout {
  double ratio;
  uint64_t seed, step;
  uint32_t stream;
  int64_t first, row;  // multiples of 4
};

/// Operands of one head (kernels/attention.h). The outputs lse, dq, dk and dv may be nullptr.
struct HeadForward {
  const float *q, *k, *v;
  float *y, *lse;
};
struct HeadBackward {
  const float *q, *k, *v, *y, *lse, *dy;
  float *dq, *dk, *dv;
};

constexpr int64_t kAttentionTile = 64;  // queries, and keys, in one tile

struct AttentionLoops {
  // The number of floats of scratch memory, a multiple of 16.
  int64_t (*forward_scratch)(const HeadDims& d);
  int64_t (*backward_scratch)(const HeadDims& d);
  // Computes the queries of tiles [tile_begin, tile_end).
  void (*forward)(const HeadDims& d, const HeadDropout& dropout, int64_t tile_begin,
                  int64_t tile_end, const HeadForward& o, float* scratch);
  void (*backward)(const HeadDims& d, const HeadDropout& dropout, const HeadBackward& o,
                   float* scratch);
};
const AttentionLoops& attention_loops();

}  // namespace trainyard::kernels::cpu
