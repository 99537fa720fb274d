#include "kernels/half.h"

#include "kernels/cpu/simd/elementwise.h"
#include "kernels/cpu/team.h"

namespace trainyard::kernels::cpu {
namespace {

const HalfLoops<math::Bf16>& loops_of(math::Bf16) { return elementwise_loops().bf16; }
const HalfLoops<math::F16>& loops_of(math::F16) { return elementwise_loops().f16; }

}  // namespace

template <typename Half>
void widen(int64_t count, const Half* x, float* y, Team& team) {
  team.parallel_for(count, kElementsPerThread, [&](int64_t begin, int64_t end) {
    loops_of(Half()).widen(end - begin, x + begin, y + begin);
  });
}

template <typename Half>
void narrow(int64_t count, const float* x, Half* y, Team& team) {
  team.parallel_for(count, kElementsPerThread, [&](int64_t begin, int64_t end) {
    loops_of(Half()).narrow(end - begin, x + begin, y + begin);
  });
}

template void widen<math::Bf16>(int64_t, const math::Bf16*, float*, Team&);
template void widen<math::F16>(int64_t, const math::F16*, float*, Team&);
template void narrow<math::Bf16>(int64_t, const float*, math::Bf16*, Team&);
template void narrow<math::F16>(int64_t, const float*, math::F16*, Team&);

}  // namespace trainyard::kernels::cpu
