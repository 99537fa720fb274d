#include "kernels/bf16.h"

namespace trainyard::kernels::reference {

void widen(int64_t count, const math::Bf16* x, float* y) {
  for (int64_t i = 0; i < count; ++i) y[i] = math::widen(x[i]);
}

void narrow(int64_t count, const float* x, math::Bf16* y) {
  for (int64_t i = 0; i < count; ++i) y[i] = math::narrow(x[i]);
}

}  // namespace trainyard::kernels::reference
