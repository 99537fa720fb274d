// kernels/cpu/simd/rows.h: loops over the rows of a matrix, for normalization, pooling and softmax;
// see simd.h.
#pragma once

#include <cstdint>

#include "kernels/layer_norm.h"

namespace trainyard::kernels::cpu {

struct RowLoops {
  // Layer normalization of some rows (kernels/layer_norm.h).
  void (*layer_norm_forward)(const LayerNormDims& d, const LayerNormOperands<float>& o);
  // dscale and db are the sums over these rows, and never null
  void (*layer_norm_backward)(const LayerNormDims& d, const LayerNormGradOperands<float>& o);
  // p = exp(z - max) / sum; returns max and sum. p may be z.
  float (*softmax)(int64_t width, const float* z, float* p, float* sum);
  // y = z - max - log sum exp(z - max). y may be z.
  void (*log_softmax)(int64_t width, const float* z, float* y);
  // Gradients of softmax and log_softmax, computed from their results (kernels/softmax.h). dx may
  // be dy.
  void (*softmax_backward)(int64_t width, const float* y, const float* dy, float* dx);
  void (*log_softmax_backward)(int64_t width, const float* y, const float* dy, float* dx);
  // y += x
  void (*accumulate)(int64_t count, const float* x, float* y);
  // y = factor * x, y may be x
  void (*scale)(int64_t count, float factor, const float* x, float* y);
};
const RowLoops& row_loops();

}  // namespace trainyard::kernels::cpu
