// Batch normalisation over rows of C neighbouring channels.
#include <cstring>

#include "kernels/cpu/simd/simd.h"
#include "kernels/cpu/simd/variant.h"

namespace trainyard::kernels::cpu {
namespace {

void sum_rows(int64_t rows, int64_t C, const float* x, float* sum) {
  std::memset(sum, 0, static_cast<size_t>(C) * sizeof(float));
  for (int64_t i = 0; i < rows; ++i, x += C) {
#pragma omp simd
    for (int64_t c = 0; c < C; ++c) sum[c] += x[c];
  }
}

void deviation_rows(int64_t rows, int64_t C, const float* x, const float* mean, float* sum) {
  std::memset(sum, 0, static_cast<size_t>(C) * sizeof(float));
  for (int64_t i = 0; i < rows; ++i, x += C) {
#pragma omp simd
    for (int64_t c = 0; c < C; ++c) sum[c] += (x[c] - mean[c]) * (x[c] - mean[c]);
  }
}

void gradient_rows(int64_t rows, int64_t C, const float* x, const float* dy, const float* mean,
                   float* dy_sum, float* product_sum) {
  std::memset(dy_sum, 0, static_cast<size_t>(C) * sizeof(float));
  std::memset(product_sum, 0, static_cast<size_t>(C) * sizeof(float));
  for (int64_t i = 0; i < rows; ++i, x += C, dy += C) {
#pragma omp simd
    for (int64_t c = 0; c < C; ++c) {
      dy_sum[c] += dy[c];
      product_sum[c] += dy[c] * (x[c] - mean[c]);
    }
  }
}

void normalise_rows(int64_t rows, int64_t C, const float* x, const float* mean, const float* scale,
                    const float* shift, float* y) {
  for (int64_t i = 0; i < rows; ++i, x += C, y += C) {
#pragma omp simd
    for (int64_t c = 0; c < C; ++c) y[c] = (x[c] - mean[c]) * scale[c] + shift[c];
  }
}

void backward_rows(int64_t rows, int64_t C, const float* x, const float* dy, const float* mean,
                   const float* scale, const float* slope, const float* shift, float* dx) {
  for (int64_t i = 0; i < rows; ++i, x += C, dy += C, dx += C) {
#pragma omp simd
    for (int64_t c = 0; c < C; ++c) {
      dx[c] = scale[c] * dy[c] - (x[c] - mean[c]) * slope[c] - shift[c];
    }
  }
}

}  // namespace

const BatchNormLoops& TRAINYARD_VARIANT(batch_norm_loops)();
const BatchNormLoops& TRAINYARD_VARIANT(batch_norm_loops)() {
  static constexpr BatchNormLoops kLoops = {sum_rows, deviation_rows, gradient_rows, normalise_rows,
                                            backward_rows};
  return kLoops;
}

}  // namespace trainyard::kernels::cpu
