// kernels/cpu/simd/embedding_bag.h: the inner loop of kernels/embedding_bag.h; see simd.h.
#pragma once

#include <cstdint>

namespace trainyard::kernels::cpu {

struct EmbeddingBagLoops {
  void (*add_scaled)(int64_t count, float scale, const float* x, float* y);  // y += scale * x
};
const EmbeddingBagLoops& embedding_bag_loops();

}  // namespace trainyard::kernels::cpu
