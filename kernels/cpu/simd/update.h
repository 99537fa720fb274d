// kernels/cpu/simd/update.h: optimizer updates over spans; see simd.h.
#pragma once

#include <cstdint>

#include "kernels/math/optimizers.h"

namespace trainyard::kernels::cpu {

struct UpdateLoops {
  void (*sgd)(const math::SgdConstants<float>& c, int64_t count, const float* g, float* p);
  void (*sgd_momentum)(const math::SgdConstants<float>& c, int64_t count, const float* g, float* p,
                       float* v);
  void (*adam)(const math::AdamConstants<float>& c, int64_t count, const float* g, float* p,
               float* m, float* v);
};
const UpdateLoops& update_loops();

}  // namespace trainyard::kernels::cpu
