// Kernels that call each function of kernels/ whose code depends on the GPU's architecture;
// architectures_test.py compiles them for every architecture.
#include "kernels/cuda/mma.h"
#include "kernels/cuda/view.h"
#include "kernels/math/elementary.h"
#include "kernels/math/half.h"
#include "kernels/math/transcendental.h"

namespace trainyard::kernels::cuda {

template <Stored kStored, typename Half>
TRAINYARD_KERNEL void probe(const uint32_t* words, float* numbers) {
  float c[4] = {};
  const uint32_t a[4] = {words[0], words[1], words[2], words[3]}, b[2] = {words[4], words[5]};
  multiply_accumulate<kStored>(c, a, b);
  const uint32_t pair = narrow_pair<kStored>(c[0], c[1]);
  const Half half = math::narrow<Half>(c[2]);
  numbers[threadIdx.x] =
      widen_half<kStored>(pair, 0) + math::widen(half) + math::exp(c[3]) + math::log(c[3]);
}

template __global__ void probe<Stored::kBf16, math::Bf16>(const uint32_t*, float*);
template __global__ void probe<Stored::kF16, math::F16>(const uint32_t*, float*);

}  // namespace trainyard::kernels::cuda
