// Loops around the formulas in kernels/math/activations.h.
#include "kernels/cpu/simd/activation.h"

#include "kernels/cpu/simd/variant.h"

namespace trainyard::kernels::cpu {
namespace {

// `omp simd` promises that iterations are independent, which also holds in place (y is x). Members
// are copied so that the compiler knows that no store changes them.
template <typename F>
void forward(const F& members, int64_t count, const float* x, float* y) {
  const F f = members;
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) y[i] = f.f(x[i]);
}

template <typename F>
void backward(const F& members, int64_t count, const float* saved, const float* dy, float* dx) {
  const F f = members;
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) dx[i] = f.df(saved[i], dy[i]);
}

}  // namespace

const ActivationLoops& TRAINYARD_VARIANT(activation_loops)();
const ActivationLoops& TRAINYARD_VARIANT(activation_loops)() {
  static constexpr ActivationLoops kLoops = {
#define TRAINYARD_ROW(F) {forward<math::F>, backward<math::F>},
      TRAINYARD_FOR_EACH_ACTIVATION(TRAINYARD_ROW)
#undef TRAINYARD_ROW
  };
  return kLoops;
}

}  // namespace trainyard::kernels::cpu
