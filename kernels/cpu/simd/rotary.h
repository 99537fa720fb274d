// kernels/cpu/simd/rotary.h: the inner loops of kernels/rotary.h; see simd.h.
#pragma once

#include <cstdint>

namespace trainyard::kernels::cpu {

struct RotaryLoops {
  /// Rotates the pairs (x[j], x[pairs + j]) of one head by cos[j] and sign * sin[j].
  void (*halves)(int64_t pairs, float sign, const float* cos, const float* sin, const float* x,
                 float* y);
  /// Rotates the pairs (x[2j], x[2j + 1]).
  void (*neighbours)(int64_t pairs, float sign, const float* cos, const float* sin, const float* x,
                     float* y);
};
const RotaryLoops& rotary_loops();

}  // namespace trainyard::kernels::cpu
