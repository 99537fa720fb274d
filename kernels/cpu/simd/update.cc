// Optimizer updates: the formulas of kernels/math/optimizers.h over contiguous arrays.
#include "kernels/cpu/simd/update.h"

#include "kernels/cpu/simd/variant.h"

namespace trainyard::kernels::cpu {
namespace {

// The constants are copied so that the compiler knows that no store changes them.
void sgd(const math::SgdConstants<float>& constants, int64_t count, const float* g, float* p) {
  const math::SgdConstants<float> c = constants;
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    float value = p[i];
    math::sgd<float>(c, g[i], value, nullptr);
    p[i] = value;
  }
}

template <bool kNesterov>
void sgd_momentum_loop(math::SgdConstants<float> c, int64_t count, const float* g, float* p,
                       float* v) {
  c.nesterov = kNesterov;
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    float value = p[i], velocity = v[i];
    math::sgd<float>(c, g[i], value, &velocity);
    p[i] = value;
    v[i] = velocity;
  }
}

void sgd_momentum(const math::SgdConstants<float>& c, int64_t count, const float* g, float* p,
                  float* v) {
  if (c.nesterov) {
    sgd_momentum_loop<true>(c, count, g, p, v);
  } else {
    sgd_momentum_loop<false>(c, count, g, p, v);
  }
}

void adam(const math::AdamConstants<float>& constants, int64_t count, const float* g, float* p,
          float* m, float* v) {
  const math::AdamConstants<float> c = constants;
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    float value = p[i], first = m[i], second = v[i];
    math::adam<float>(c, g[i], value, first, second);
    p[i] = value;
    m[i] = first;
    v[i] = second;
  }
}

template <bool kCentered, bool kMomentum>
void rmsprop_loop(const math::RmspropConstants<float>& constants, int64_t count, const float* g,
                  float* p, float* square, float* a, float* b) {
  const math::RmspropConstants<float> c = constants;
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    float value = p[i], variance = square[i];
    float mean = kCentered ? a[i] : 0.0f, velocity = kMomentum ? b[i] : 0.0f;
    math::rmsprop<float>(c, g[i], value, variance, kCentered ? &mean : nullptr,
                         kMomentum ? &velocity : nullptr);
    p[i] = value;
    square[i] = variance;
    if constexpr (kCentered) a[i] = mean;
    if constexpr (kMomentum) b[i] = velocity;
  }
}

void rmsprop(const math::RmspropConstants<float>& c, int64_t count, const float* g, float* p,
             float* square, float* a, float* b) {
  if (a != nullptr) {
    b != nullptr ? rmsprop_loop<true, true>(c, count, g, p, square, a, b)
                 : rmsprop_loop<true, false>(c, count, g, p, square, a, b);
  } else {
    b != nullptr ? rmsprop_loop<false, true>(c, count, g, p, square, a, b)
                 : rmsprop_loop<false, false>(c, count, g, p, square, a, b);
  }
}

void lion(const math::LionConstants<float>& constants, int64_t count, const float* g, float* p,
          float* m) {
  const math::LionConstants<float> c = constants;
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    float value = p[i], first = m[i];
    math::lion<float>(c, g[i], value, first);
    p[i] = value;
    m[i] = first;
  }
}

void moving_average(float new_share, int64_t count, const float* p, float* average) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    average[i] = math::moving_average(average[i], p[i], new_share);
  }
}

void clip_gradient(float scale, float bound, int64_t count, const float* g, float* y) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) y[i] = math::clip_gradient(g[i], scale, bound);
}

void accumulate(float share, int64_t count, const float* g, float* sum) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) sum[i] = share * g[i] + sum[i];
}

void scale(float factor, int64_t count, const float* x, float* y) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) y[i] = factor * x[i];
}

void combine(float a, const float* x, float b, int64_t count, float* y) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) y[i] = a * x[i] + b * y[i];
}

double square_sum(int64_t count, const float* x) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < count; ++i) {
    sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  }
  return sum;
}

double row_squares(int64_t columns, const float* g, double* column) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t c = 0; c < columns; ++c) {
    const double square = static_cast<double>(g[c]) * static_cast<double>(g[c]);
    column[c] += square;
    sum += square;
  }
  return sum;
}

double update_squares(int64_t columns, const float* g, const float* column, float factor,
                      float floor) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t c = 0; c < columns; ++c) {
    const float u = math::adafactor_update(g[c], column[c] * factor, floor);
    sum += static_cast<double>(u) * static_cast<double>(u);
  }
  return sum;
}

void factored_update(int64_t columns, const float* g, const float* column, float factor,
                     float floor, float kept, float rate, float* p) {
#pragma omp simd
  for (int64_t c = 0; c < columns; ++c) {
    p[c] = p[c] * kept - rate * math::adafactor_update(g[c], column[c] * factor, floor);
  }
}

void muon_momentum(float momentum, bool nesterov, int64_t count, const float* g, float* m,
                   float* x) {
  const float share = nesterov ? momentum : 1.0f;  // weight of m in x; that of g is 1 - share
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const float first = m[i] + (1.0f - momentum) * (g[i] - m[i]);
    m[i] = first;
    x[i] = g[i] + share * (first - g[i]);
  }
}

}  // namespace

const UpdateLoops& TRAINYARD_VARIANT(update_loops)();
const UpdateLoops& TRAINYARD_VARIANT(update_loops)() {
  static constexpr UpdateLoops kLoops = {
      sgd,          sgd_momentum, adam,    rmsprop,    lion,        moving_average, clip_gradient,
      accumulate,   scale,        combine, square_sum, row_squares, update_squares, factored_update,
      muon_momentum};
  return kLoops;
}

}  // namespace trainyard::kernels::cpu
