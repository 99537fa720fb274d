#include "kernels/cpu/simd/embedding_bag.h"

#include "kernels/cpu/simd/variant.h"

namespace trainyard::kernels::cpu {
namespace {

void add_scaled(int64_t count, float scale, const float* x, float* y) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) y[i] += scale * x[i];
}

}  // namespace

const EmbeddingBagLoops& TRAINYARD_VARIANT(embedding_bag_loops)();
const EmbeddingBagLoops& TRAINYARD_VARIANT(embedding_bag_loops)() {
  static constexpr EmbeddingBagLoops kLoops = {add_scaled};
  return kLoops;
}

}  // namespace trainyard::kernels::cpu
