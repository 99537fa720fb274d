#include "kernels/bf16.h"

#include "kernels/cpu/simd/elementwise.h"
#include "kernels/cpu/team.h"

namespace trainyard::kernels::cpu {

void widen(int64_t count, const math::Bf16* x, float* y, Team& team) {
  team.parallel_for(count, kElementsPerThread, [&](int64_t begin, int64_t end) {
    elementwise_loops().widen(end - begin, x + begin, y + begin);
  });
}

void narrow(int64_t count, const float* x, math::Bf16* y, Team& team) {
  team.parallel_for(count, kElementsPerThread, [&](int64_t begin, int64_t end) {
    elementwise_loops().narrow(end - begin, x + begin, y + begin);
  });
}

}  // namespace trainyard::kernels::cpu
