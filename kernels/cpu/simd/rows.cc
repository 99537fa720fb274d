#include "kernels/cpu/simd/rows.h"

#include <cmath>
#include <cstring>

#include "kernels/cpu/simd/variant.h"
#include "kernels/math/transcendental.h"

namespace trainyard::kernels::cpu {
namespace {

void layer_norm_forward(const LayerNormDims& d, const LayerNormOperands<float>& o) {
  const float *x = o.x, *scale = o.scale, *b = o.b;
  float *y = o.y, *mean = o.mean, *inv_std = o.inv_std;
  const int64_t W = d.width, rows = d.rows;
  const float share = 1.0f / static_cast<float>(W);
  for (int64_t n = 0; n < rows; ++n, x += W, y += W) {
    float m = 0, squares = 0;
    if (!d.rms) {
#pragma omp simd reduction(+ : m)
      for (int64_t i = 0; i < W; ++i) m += x[i];
      m *= share;
    }
#pragma omp simd reduction(+ : squares)
    for (int64_t i = 0; i < W; ++i) squares += (x[i] - m) * (x[i] - m);
    const float inv = 1.0f / std::sqrt(squares * share + static_cast<float>(d.epsilon));
    if (mean != nullptr) mean[n] = m;
    if (inv_std != nullptr) inv_std[n] = inv;
    if (b == nullptr) {
#pragma omp simd
      for (int64_t i = 0; i < W; ++i) y[i] = (x[i] - m) * inv * scale[i];
    } else {
#pragma omp simd
      for (int64_t i = 0; i < W; ++i) y[i] = (x[i] - m) * inv * scale[i] + b[i];
    }
  }
}

void layer_norm_backward(const LayerNormDims& d, const LayerNormGradOperands<float>& o) {
  const float *x = o.x, *scale = o.scale, *mean = o.mean, *inv_std = o.inv_std, *dy = o.dy;
  float *dx = o.dx, *dscale = o.dscale, *db = o.db;
  const int64_t W = d.width, rows = d.rows;
  const float share = 1.0f / static_cast<float>(W);
  std::memset(dscale, 0, static_cast<size_t>(W) * sizeof(float));
  std::memset(db, 0, static_cast<size_t>(W) * sizeof(float));
  for (int64_t n = 0; n < rows; ++n, x += W, dy += W) {
    const float m = d.rms ? 0.0f : mean[n], inv = inv_std[n];
    float sum = 0, products = 0;
#pragma omp simd reduction(+ : sum, products)
    for (int64_t i = 0; i < W; ++i) {
      const float xhat = (x[i] - m) * inv, g = dy[i] * scale[i];
      sum += g;
      products += g * xhat;
      dscale[i] += dy[i] * xhat;
      db[i] += dy[i];
    }
    if (dx == nullptr) continue;
    const float shift = d.rms ? 0.0f : sum * share, slope = products * share;
    float* out = dx + n * W;
#pragma omp simd
    for (int64_t i = 0; i < W; ++i) {
      out[i] = inv * (dy[i] * scale[i] - shift - (x[i] - m) * inv * slope);
    }
  }
}

float softmax(int64_t width, const float* z, float* p, float* total) {
  float max = z[0], sum = 0;
#pragma omp simd reduction(max : max)
  for (int64_t i = 0; i < width; ++i) max = max < z[i] ? z[i] : max;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < width; ++i) {
    const float e = math::exp(z[i] - max);
    p[i] = e;
    sum += e;
  }
  const float share = 1.0f / sum;
#pragma omp simd
  for (int64_t i = 0; i < width; ++i) p[i] *= share;
  *total = sum;
  return max;
}

void log_softmax(int64_t width, const float* z, float* y) {
  float max = z[0], sum = 0;
#pragma omp simd reduction(max : max)
  for (int64_t i = 0; i < width; ++i) max = max < z[i] ? z[i] : max;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < width; ++i) sum += math::exp(z[i] - max);
  const float log_sum = std::log(sum);
#pragma omp simd
  for (int64_t i = 0; i < width; ++i) y[i] = (z[i] - max) - log_sum;
}

void softmax_backward(int64_t width, const float* y, const float* dy, float* dx) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < width; ++i) sum += dy[i] * y[i];
#pragma omp simd
  for (int64_t i = 0; i < width; ++i) dx[i] = y[i] * (dy[i] - sum);
}

void log_softmax_backward(int64_t width, const float* y, const float* dy, float* dx) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < width; ++i) sum += dy[i];
#pragma omp simd
  for (int64_t i = 0; i < width; ++i) dx[i] = dy[i] - math::exp(y[i]) * sum;
}

void accumulate(int64_t count, const float* x, float* y) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) y[i] += x[i];
}

void scale(int64_t count, float factor, const float* x, float* y) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) y[i] = factor * x[i];
}

}  // namespace

const RowLoops& TRAINYARD_VARIANT(row_loops)();
const RowLoops& TRAINYARD_VARIANT(row_loops)() {
  static constexpr RowLoops kLoops = {
      layer_norm_forward, layer_norm_backward,  softmax,    log_softmax,
      softmax_backward,   log_softmax_backward, accumulate, scale};
  return kLoops;
}

}  // namespace trainyard::kernels::cpu
