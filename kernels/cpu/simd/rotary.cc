#include "kernels/cpu/simd/rotary.h"

#include "kernels/cpu/simd/variant.h"

namespace trainyard::kernels::cpu {
namespace {

// y may be x: both numbers of a pair are read before one is written.
void halves(int64_t pairs, float sign, const float* cos, const float* sin, const float* x,
            float* y) {
#pragma omp simd
  for (int64_t j = 0; j < pairs; ++j) {
    const float c = cos[j], s = sign * sin[j], first = x[j], second = x[pairs + j];
    y[j] = c * first - s * second;
    y[pairs + j] = s * first + c * second;
  }
}

void neighbours(int64_t pairs, float sign, const float* cos, const float* sin, const float* x,
                float* y) {
#pragma omp simd
  for (int64_t j = 0; j < pairs; ++j) {
    const float c = cos[j], s = sign * sin[j], first = x[2 * j], second = x[2 * j + 1];
    y[2 * j] = c * first - s * second;
    y[2 * j + 1] = s * first + c * second;
  }
}

}  // namespace

const RotaryLoops& TRAINYARD_VARIANT(rotary_loops)();
const RotaryLoops& TRAINYARD_VARIANT(rotary_loops)() {
  static constexpr RotaryLoops kLoops = {halves, neighbours};
  return kLoops;
}

}  // namespace trainyard::kernels::cpu
