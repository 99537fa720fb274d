#include "kernels/tensor_scatter.h"

#include <algorithm>

namespace trainyard::kernels::reference {

template <typename T>
void tensor_scatter(const TensorScatterDims& d, const T* update, const int32_t* position, T* cache,
                    Run<T>) {
  check(d, update, position, cache);
  for (int64_t i = 0; i < d.N * d.T; ++i) {
    const int64_t row = d.row(position, i);
    if (row >= 0) std::copy_n(update + i * d.W, d.W, cache + row * d.W);
  }
}

template void tensor_scatter<float>(const TensorScatterDims&, const float*, const int32_t*, float*,
                                    Run<float>);
template void tensor_scatter<double>(const TensorScatterDims&, const double*, const int32_t*,
                                     double*, Run<double>);

}  // namespace trainyard::kernels::reference
