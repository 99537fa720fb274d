// Batch normalization over rows of C contiguous channels.
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

void normalize_rows(const NormalizedRows& o) {
  const int64_t C = o.C;
  const float *x = o.x, *mean = o.mean, *scale = o.scale, *shift = o.shift;
  float* y = o.y;
  for (int64_t i = 0; i < o.rows; ++i, x += C, y += C) {
#pragma omp simd
    for (int64_t c = 0; c < C; ++c) y[c] = (x[c] - mean[c]) * scale[c] + shift[c];
  }
}

void backward_rows(const NormalizedGradRows& o) {
  const int64_t C = o.C;
  const float *x = o.x, *dy = o.dy, *mean = o.mean;
  const float *scale = o.scale, *slope = o.slope, *shift = o.shift;
  float* dx = o.dx;
  for (int64_t i = 0; i < o.rows; ++i, x += C, dy += C, dx += C) {
#pragma omp simd
    for (int64_t c = 0; c < C; ++c) {
      dx[c] = scale[c] * dy[c] - (x[c] - mean[c]) * slope[c] - shift[c];
    }
  }
}

void normalize_relu_rows(const NormalizedRows& o) {
  const int64_t C = o.C;
  const float *x = o.x, *mean = o.mean, *scale = o.scale, *shift = o.shift;
  const float* residual = o.residual;
  float* y = o.y;
  if (residual == nullptr) {
    for (int64_t i = 0; i < o.rows; ++i, x += C, y += C) {
#pragma omp simd
      for (int64_t c = 0; c < C; ++c) {
        y[c] = math::Relu::f((x[c] - mean[c]) * scale[c] + shift[c]);
      }
    }
    return;
  }
  for (int64_t i = 0; i < o.rows; ++i, x += C, y += C, residual += C) {
#pragma omp simd
    for (int64_t c = 0; c < C; ++c) {
      y[c] = math::Relu::f((x[c] - mean[c]) * scale[c] + shift[c] + residual[c]);
    }
  }
}

void normalize_add_rows(const NormalizedRows& o) {
  const int64_t C = o.C;
  const float *x = o.x, *mean = o.mean, *scale = o.scale, *shift = o.shift;
  const float* residual = o.residual;
  float* y = o.y;
  for (int64_t i = 0; i < o.rows; ++i, x += C, y += C, residual += C) {
#pragma omp simd
    for (int64_t c = 0; c < C; ++c) y[c] = (x[c] - mean[c]) * scale[c] + shift[c] + residual[c];
  }
}

void gradient_relu_rows(const NormalizedGradRows& o, float* dy_sum, float* product_sum) {
  const int64_t C = o.C;
  const float *x = o.x, *dy = o.dy, *mean = o.mean, *y = o.y, *gain = o.gain, *bias = o.bias;
  std::memset(dy_sum, 0, static_cast<size_t>(C) * sizeof(float));
  std::memset(product_sum, 0, static_cast<size_t>(C) * sizeof(float));
  if (y == nullptr) {
    for (int64_t i = 0; i < o.rows; ++i, x += C, dy += C) {
#pragma omp simd
      for (int64_t c = 0; c < C; ++c) {
        const float g = math::Relu::df((x[c] - mean[c]) * gain[c] + bias[c], dy[c]);
        dy_sum[c] += g;
        product_sum[c] += g * (x[c] - mean[c]);
      }
    }
    return;
  }
  for (int64_t i = 0; i < o.rows; ++i, x += C, dy += C, y += C) {
#pragma omp simd
    for (int64_t c = 0; c < C; ++c) {
      const float g = math::Relu::df(y[c], dy[c]);
      dy_sum[c] += g;
      product_sum[c] += g * (x[c] - mean[c]);
    }
  }
}

// Computes the row that begins at element `at`; the template arguments say which tensors exist.
template <bool kFromY, bool kDx, bool kG>
void backward_relu_row(const NormalizedGradRows& o, int64_t at) {
  const int64_t C = o.C;
  const float *x = o.x + at, *dy = o.dy + at, *mean = o.mean, *gain = o.gain, *bias = o.bias;
  const float *scale = o.scale, *slope = o.slope, *shift = o.shift;
  const float* y = kFromY ? o.y + at : nullptr;
  float *dx = kDx ? o.dx + at : nullptr, *g = kG ? o.g + at : nullptr;
#pragma omp simd
  for (int64_t c = 0; c < C; ++c) {
    const float out = kFromY ? y[c] : (x[c] - mean[c]) * gain[c] + bias[c];
    const float masked = math::Relu::df(out, dy[c]);
    if (kDx) dx[c] = scale[c] * masked - (x[c] - mean[c]) * slope[c] - shift[c];
    if (kG) g[c] = masked;
  }
}

void backward_relu_rows(const NormalizedGradRows& o) {
  using Row = void (*)(const NormalizedGradRows&, int64_t);
  static constexpr Row kRows[2][2][2] = {
      {{backward_relu_row<false, false, false>, backward_relu_row<false, false, true>},
       {backward_relu_row<false, true, false>, backward_relu_row<false, true, true>}},
      {{backward_relu_row<true, false, false>, backward_relu_row<true, false, true>},
       {backward_relu_row<true, true, false>, backward_relu_row<true, true, true>}}};
  const Row row = kRows[o.y != nullptr][o.dx != nullptr][o.g != nullptr];
  for (int64_t i = 0; i < o.rows; ++i) row(o, i * o.C);
}

}  // namespace

const BatchNormLoops& TRAINYARD_VARIANT(batch_norm_loops)();
const BatchNormLoops& TRAINYARD_VARIANT(batch_norm_loops)() {
  static constexpr BatchNormLoops kLoops = {
      sum_rows,           deviation_rows,     gradient_rows,
      normalize_rows,     backward_rows,      normalize_relu_rows,
      normalize_add_rows, gradient_relu_rows, backward_relu_rows};
  return kLoops;
}

}  // namespace trainyard::kernels::cpu
