// Batch normalisation over rows of C neighbouring channels.
#include <cstring>

#include "kernels/cpu/simd/simd.h"
#include "kernels/cpu/simd/variant.h"
#include "kernels/math/activations.h"

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

void normalise_relu_rows(int64_t rows, int64_t C, const float* x, const float* mean,
                         const float* scale, const float* shift, const float* residual, float* y) {
  if (residual == nullptr) {
    for (int64_t i = 0; i < rows; ++i, x += C, y += C) {
#pragma omp simd
      for (int64_t c = 0; c < C; ++c) {
        y[c] = math::Relu::f((x[c] - mean[c]) * scale[c] + shift[c]);
      }
    }
    return;
  }
  for (int64_t i = 0; i < rows; ++i, x += C, y += C, residual += C) {
#pragma omp simd
    for (int64_t c = 0; c < C; ++c) {
      y[c] = math::Relu::f((x[c] - mean[c]) * scale[c] + shift[c] + residual[c]);
    }
  }
}

void normalise_add_rows(int64_t rows, int64_t C, const float* x, const float* mean,
                        const float* scale, const float* shift, const float* residual, float* y) {
  for (int64_t i = 0; i < rows; ++i, x += C, y += C, residual += C) {
#pragma omp simd
    for (int64_t c = 0; c < C; ++c) y[c] = (x[c] - mean[c]) * scale[c] + shift[c] + residual[c];
  }
}

void gradient_relu_rows(int64_t rows, int64_t C, const float* x, const float* dy, const float* mean,
                        const float* y, const float* gain, const float* bias, float* dy_sum,
                        float* product_sum) {
  std::memset(dy_sum, 0, static_cast<size_t>(C) * sizeof(float));
  std::memset(product_sum, 0, static_cast<size_t>(C) * sizeof(float));
  if (y == nullptr) {
    for (int64_t i = 0; i < rows; ++i, x += C, dy += C) {
#pragma omp simd
      for (int64_t c = 0; c < C; ++c) {
        const float g = math::Relu::df((x[c] - mean[c]) * gain[c] + bias[c], dy[c]);
        dy_sum[c] += g;
        product_sum[c] += g * (x[c] - mean[c]);
      }
    }
    return;
  }
  for (int64_t i = 0; i < rows; ++i, x += C, dy += C, y += C) {
#pragma omp simd
    for (int64_t c = 0; c < C; ++c) {
      const float g = math::Relu::df(y[c], dy[c]);
      dy_sum[c] += g;
      product_sum[c] += g * (x[c] - mean[c]);
    }
  }
}

// One row; which tensors there are is known to the compiler.
template <bool kFromY, bool kDx, bool kG>
void backward_relu_row(int64_t C, const float* x, const float* dy, const float* mean,
                       const float* y, const float* gain, const float* bias, const float* scale,
                       const float* slope, const float* shift, float* dx, float* g) {
#pragma omp simd
  for (int64_t c = 0; c < C; ++c) {
    const float out = kFromY ? y[c] : (x[c] - mean[c]) * gain[c] + bias[c];
    const float masked = math::Relu::df(out, dy[c]);
    if (kDx) dx[c] = scale[c] * masked - (x[c] - mean[c]) * slope[c] - shift[c];
    if (kG) g[c] = masked;
  }
}

void backward_relu_rows(int64_t rows, int64_t C, const float* x, const float* dy, const float* mean,
                        const float* y, const float* gain, const float* bias, const float* scale,
                        const float* slope, const float* shift, float* dx, float* g) {
  using Row =
      void (*)(int64_t, const float*, const float*, const float*, const float*, const float*,
               const float*, const float*, const float*, const float*, float*, float*);
  static constexpr Row kRows[2][2][2] = {
      {{backward_relu_row<false, false, false>, backward_relu_row<false, false, true>},
       {backward_relu_row<false, true, false>, backward_relu_row<false, true, true>}},
      {{backward_relu_row<true, false, false>, backward_relu_row<true, false, true>},
       {backward_relu_row<true, true, false>, backward_relu_row<true, true, true>}}};
  const Row row = kRows[y != nullptr][dx != nullptr][g != nullptr];
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t at = i * C;
    row(C, x + at, dy + at, mean, y == nullptr ? nullptr : y + at, gain, bias, scale, slope, shift,
        dx == nullptr ? nullptr : dx + at, g == nullptr ? nullptr : g + at);
  }
}

}  // namespace

const BatchNormLoops& TRAINYARD_VARIANT(batch_norm_loops)();
const BatchNormLoops& TRAINYARD_VARIANT(batch_norm_loops)() {
  static constexpr BatchNormLoops kLoops = {
      sum_rows,           deviation_rows,     gradient_rows,
      normalise_rows,     backward_rows,      normalise_relu_rows,
      normalise_add_rows, gradient_relu_rows, backward_relu_rows};
  return kLoops;
}

}  // namespace trainyard::kernels::cpu
