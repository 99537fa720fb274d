// kernels/cpu/simd/arithmetic.h: functions of two numbers over the runs of boxes; see simd.h.
#pragma once

#include <cstdint>

#include "kernels/math/arithmetic.h"

namespace trainyard::kernels::cpu {

// y and the gradients are contiguous; a and b have strides.
using ArithmeticLoop = void (*)(int64_t count, const float* a, int64_t a_stride, const float* b,
                                int64_t b_stride, float* y);
// da or db may be nullptr
using ArithmeticGradLoop = void (*)(int64_t count, const float* a, int64_t a_stride, const float* b,
                                    int64_t b_stride, const float* dy, float* da, float* db);

struct ArithmeticLoops {
#define TRAINYARD_MEMBER(F) ArithmeticLoop F;
  TRAINYARD_FOR_EACH_ARITHMETIC(TRAINYARD_MEMBER)
#undef TRAINYARD_MEMBER
#define TRAINYARD_MEMBER(F) ArithmeticGradLoop F##Grad;
  TRAINYARD_FOR_EACH_ARITHMETIC_GRAD(TRAINYARD_MEMBER)
#undef TRAINYARD_MEMBER
};
const ArithmeticLoops& arithmetic_loops();

}  // namespace trainyard::kernels::cpu
