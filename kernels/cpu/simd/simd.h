// kernels/cpu/simd/simd.h: inner loops that are compiled once per instruction set.
//
// Each table contains single-threaded loops over contiguous memory. Its source is compiled three
// times (CMakeLists.txt in this folder), and the table for the best instruction set of this CPU is
// used. The callers in kernels/cpu split the work over threads. TRAINYARD_ISA=baseline|avx2|avx512
// selects a lower instruction set, so that tests can run all of them, and so that different hosts
// can produce the same bits.
//
// Code in those sources may only call inlined functions and the C library. Of a function that is
// not inlined the linker keeps a single copy, and a copy compiled for AVX-512 would then run on
// every CPU.
#pragma once

#include <cstdint>

#include "kernels/batch_norm.h"
#include "kernels/pool.h"

namespace trainyard::kernels::cpu {

enum class Isa { kBaseline, kAvx2, kAvx512 };
Isa best_isa();

/// Channels-last pooling of images [begin, end).
struct PoolLoops {
  void (*max_forward)(const PoolDims& d, const float* x, float* y, uint8_t* winner, int64_t begin,
                      int64_t end);
  void (*max_backward)(const PoolDims& d, const float* x, const uint8_t* winner, const float* dy,
                       float* dx, int64_t begin, int64_t end);
  void (*average_forward)(const PoolDims& d, const float* x, float* y, int64_t begin, int64_t end);
  void (*average_backward)(const PoolDims& d, const float* dy, float* dx, int64_t begin,
                           int64_t end);
  void (*global_forward)(const ImageDims& d, const float* x, float* y, int64_t begin, int64_t end);
  void (*global_backward)(const ImageDims& d, const float* dy, float* dx, int64_t begin,
                          int64_t end);
};
const PoolLoops& pool_loops();

/// Rows of C contiguous channels for normalization; only some loops add `residual`.
struct NormalizedRows {
  int64_t rows, C;
  const float* x;                     // [rows, C]
  const float *mean, *scale, *shift;  // [C]
  const float* residual = nullptr;    // [rows, C]
  float* y;                           // [rows, C]
};

/// Operands of the gradient of NormalizedRows. The loops with ReLU mask dy by the sign of the
/// output, which is y or, if y is nullptr, (x - mean[c]) * gain[c] + bias[c].
struct NormalizedGradRows {
  int64_t rows, C;
  const float *x, *dy;                                               // [rows, C]
  const float* mean;                                                 // [C]
  const float* y = nullptr;                                          // [rows, C]
  const float *gain = nullptr, *bias = nullptr;                      // [C]
  const float *scale = nullptr, *slope = nullptr, *shift = nullptr;  // [C]
  float *dx = nullptr, *g = nullptr;                                 // [rows, C]
};

/// Loops over rows [rows, C] of channels-last data, or over contiguous values of one channel (C =
/// 1).
struct BatchNormLoops {
  // sum[c] = sum over rows of x
  void (*sum_rows)(int64_t rows, int64_t C, const float* x, float* sum);
  // sum[c] = sum over rows of (x - mean[c])^2
  void (*deviation_rows)(int64_t rows, int64_t C, const float* x, const float* mean, float* sum);
  // dy_sum[c] = sum dy, product_sum[c] = sum dy * (x - mean[c])
  void (*gradient_rows)(int64_t rows, int64_t C, const float* x, const float* dy, const float* mean,
                        float* dy_sum, float* product_sum);
  // y = (x - mean[c]) * scale[c] + shift[c]
  void (*normalize_rows)(const NormalizedRows& o);
  // dx = scale[c] * dy - (x - mean[c]) * slope[c] - shift[c]
  void (*backward_rows)(const NormalizedGradRows& o);
  // y = max(0, (x - mean[c]) * scale[c] + shift[c] + residual); residual may be nullptr
  void (*normalize_relu_rows)(const NormalizedRows& o);
  // normalize_rows with a residual and without max
  void (*normalize_add_rows)(const NormalizedRows& o);
  // gradient_rows and backward_rows with g in place of dy: g = dy where the output was above 0,
  // else 0
  void (*gradient_relu_rows)(const NormalizedGradRows& o, float* dy_sum, float* product_sum);
  // dx and g may be nullptr
  void (*backward_relu_rows)(const NormalizedGradRows& o);
};
const BatchNormLoops& batch_norm_loops();

}  // namespace trainyard::kernels::cpu
