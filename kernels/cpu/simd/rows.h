// kernels/cpu/simd/rows.h: loops over rows of a matrix that are normalised, pooled or made into
// probabilities; see simd.h.
#pragma once

#include <cstdint>

#include "kernels/layer_norm.h"

namespace trainyard::kernels::cpu {

struct RowLoops {
  // Rows [rows, width]; null outputs as in kernels/layer_norm.h.
  void (*layer_norm_forward)(const LayerNormDims& d, int64_t rows, const float* x,
                             const float* scale, const float* b, float* y, float* mean,
                             float* inv_std);
  // dscale and db are this span's sums and never null
  void (*layer_norm_backward)(const LayerNormDims& d, int64_t rows, const float* x,
                              const float* scale, const float* mean, const float* inv_std,
                              const float* dy, float* dx, float* dscale, float* db);
  // p = exp(z - max) / sum; returns max and sum. p may be z.
  float (*softmax)(int64_t width, const float* z, float* p, float* sum);
  // y = z - max - log sum exp(z - max). y may be z.
  void (*log_softmax)(int64_t width, const float* z, float* y);
  // Gradients of both by their results (kernels/softmax.h). dx may be dy.
  void (*softmax_backward)(int64_t width, const float* y, const float* dy, float* dx);
  void (*log_softmax_backward)(int64_t width, const float* y, const float* dy, float* dx);
  // y += x
  void (*accumulate)(int64_t count, const float* x, float* y);
  // y = factor * x, y may be x
  void (*scale)(int64_t count, float factor, const float* x, float* y);
};
const RowLoops& row_loops();

}  // namespace trainyard::kernels::cpu
