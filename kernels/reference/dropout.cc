#include "kernels/dropout.h"

namespace trainyard::kernels::reference {

template <typename T>
void dropout(const DropoutParams& p, const int64_t* step, const T* x, T* y, Run<T>) {
  check(p, step, x, y);
  const uint32_t threshold = math::dropout_threshold(p.ratio);
  const T scale = static_cast<T>(1 / (1 - p.ratio));
  for (int64_t i = 0; i < p.count; ++i) {
    const int64_t block = p.columns.own == 0 ? i / 4 : p.columns.block(i / 4);
    const uint32_t random =
        math::philox_u32(p.seed, p.stream, static_cast<uint64_t>(*step),
                         static_cast<uint64_t>(4 * (p.first_block + block) + i % 4));
    y[i] = math::dropout_keeps(random, threshold) ? x[i] * scale : T(0);
  }
}

template void dropout<float>(const DropoutParams&, const int64_t*, const float*, float*,
                             Run<float>);
template void dropout<double>(const DropoutParams&, const int64_t*, const double*, double*,
                              Run<double>);

}  // namespace trainyard::kernels::reference
