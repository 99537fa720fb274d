// kernels/cpu/simd/reduce.h: reductions of contiguous runs and of rows; see simd.h.
#pragma once

#include <cstdint>

namespace trainyard::kernels::cpu {

struct ReduceLoops {
  // The sum, sum of squares, minimum and maximum of contiguous values. Sums run in 32 lanes over
  // blocks of 4096, which are added in double: the same order for every vector width.
  double (*sum)(int64_t count, const float* x);
  double (*squares)(int64_t count, const float* x);
  float (*min)(int64_t count, const float* x);
  float (*max)(int64_t count, const float* x);
  // Combines a contiguous row x into the row acc: acc + x, acc + x^2, min(acc, x), max(acc, x).
  void (*add_row)(int64_t count, const float* x, float* acc);
  void (*square_row)(int64_t count, const float* x, float* acc);
  void (*min_row)(int64_t count, const float* x, float* acc);
  void (*max_row)(int64_t count, const float* x, float* acc);
  // Gradients of a contiguous run. scale: dx = slope * x; select: dx = slope where x equals y, else
  // 0.
  void (*scale)(int64_t count, float slope, const float* x, float* dx);
  int64_t (*count_equal)(int64_t count, float y, const float* x);
  void (*select)(int64_t count, float slope, float y, const float* x, float* dx);
};
const ReduceLoops& reduce_loops();

}  // namespace trainyard::kernels::cpu
