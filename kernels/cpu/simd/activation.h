// kernels/cpu/simd/activation.h: functions of one number over contiguous arrays; see simd.h.
#pragma once

#include <cstdint>

#include "kernels/math/activations.h"

namespace trainyard::kernels::cpu {

template <typename F>
struct UnaryLoops {
  void (*forward)(const F& f, int64_t count, const float* x, float* y);  // y may be x
  void (*backward)(const F& f, int64_t count, const float* saved, const float* dy, float* dx);
};

struct ActivationLoops {
#define TRAINYARD_MEMBER(F) UnaryLoops<math::F> F;
  TRAINYARD_FOR_EACH_ACTIVATION(TRAINYARD_MEMBER)
#undef TRAINYARD_MEMBER
};
const ActivationLoops& activation_loops();

}  // namespace trainyard::kernels::cpu
