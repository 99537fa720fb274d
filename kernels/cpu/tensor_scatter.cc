#include "kernels/tensor_scatter.h"

#include <cstring>

#include "kernels/cpu/team.h"

namespace trainyard::kernels::cpu {

void tensor_scatter(const TensorScatterDims& d, const float* update, const int32_t* position,
                    float* cache, Run run) {
  check(d, update, position, cache);
  run.team.parallel_for(d.N * d.T, grain_of(d.W), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = d.row(position, i);
      if (row < 0) continue;
      std::memcpy(cache + row * d.W, update + i * d.W, static_cast<size_t>(d.W) * sizeof(float));
    }
  });
}

}  // namespace trainyard::kernels::cpu
