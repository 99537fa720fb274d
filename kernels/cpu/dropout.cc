#include "kernels/dropout.h"

#include "kernels/cpu/simd/elementwise.h"
#include "kernels/cpu/team.h"

namespace trainyard::kernels::cpu {

void dropout(const DropoutParams& p, const int64_t* step, const float* x, float* y, Run run) {
  check(p, step, x, y);
  constexpr int64_t kBlock = 4;  // random numbers per Philox block; threads get whole blocks
  const int64_t blocks = (p.count + kBlock - 1) / kBlock;
  run.team.parallel_for(blocks, kElementsPerThread / 32, [&](int64_t begin, int64_t end) {
    elementwise_loops().dropout(p, static_cast<uint64_t>(*step), begin, end, x, y);
  });
}

}  // namespace trainyard::kernels::cpu
