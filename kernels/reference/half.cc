#include "kernels/half.h"

namespace trainyard::kernels::reference {

template <typename Half>
void widen(int64_t count, const Half* x, float* y) {
  for (int64_t i = 0; i < count; ++i) y[i] = math::widen(x[i]);
}

template <typename Half>
void narrow(int64_t count, const float* x, Half* y) {
  for (int64_t i = 0; i < count; ++i) y[i] = math::narrow<Half>(x[i]);
}

template void widen<math::Bf16>(int64_t, const math::Bf16*, float*);
template void widen<math::F16>(int64_t, const math::F16*, float*);
template void narrow<math::Bf16>(int64_t, const float*, math::Bf16*);
template void narrow<math::F16>(int64_t, const float*, math::F16*);

}  // namespace trainyard::kernels::reference
