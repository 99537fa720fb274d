// Optimizer updates: the formulas of kernels/math/optimizers.h over spans.
#include "kernels/cpu/simd/update.h"

#include "kernels/cpu/simd/variant.h"

namespace trainyard::kernels::cpu {
namespace {

// The constants are copied so that the compiler sees that no store changes them.
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

}  // namespace

const UpdateLoops& TRAINYARD_VARIANT(update_loops)();
const UpdateLoops& TRAINYARD_VARIANT(update_loops)() {
  static constexpr UpdateLoops kLoops = {sgd, sgd_momentum, adam};
  return kLoops;
}

}  // namespace trainyard::kernels::cpu
