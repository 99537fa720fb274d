#include "kernels/softmax_xent.h"

#include <algorithm>
#include <cmath>

namespace trainyard::kernels::reference {

template <typename T>
void softmax_xent_forward(SoftmaxXentDims d, const T* z, const int32_t* label, T* loss, T* p) {
  double total = 0;
  for (int64_t n = 0; n < d.rows; ++n) {
    const T* z_row = z + n * d.classes;
    T* p_row = p + n * d.classes;
    const T max = *std::max_element(z_row, z_row + d.classes);
    const T z_label = z_row[label[n]];  // before p overwrites it
    T sum = T(0);
    for (int64_t k = 0; k < d.classes; ++k) sum += p_row[k] = std::exp(z_row[k] - max);
    for (int64_t k = 0; k < d.classes; ++k) p_row[k] /= sum;
    total += static_cast<double>(std::log(sum) - (z_label - max));
  }
  *loss = static_cast<T>(total / static_cast<double>(d.rows));
}

template <typename T>
void softmax_xent_backward(SoftmaxXentDims d, const T* p, const int32_t* label, const T* dloss,
                           T* dz) {
  const T scale = *dloss / static_cast<T>(d.rows);
  for (int64_t n = 0; n < d.rows; ++n) {
    for (int64_t k = 0; k < d.classes; ++k) {
      const int64_t i = n * d.classes + k;
      dz[i] = scale * (p[i] - (k == label[n] ? T(1) : T(0)));
    }
  }
}

#define TRAINYARD_INSTANTIATE(T)                                                            \
  template void softmax_xent_forward<T>(SoftmaxXentDims, const T*, const int32_t*, T*, T*); \
  template void softmax_xent_backward<T>(SoftmaxXentDims, const T*, const int32_t*, const T*, T*);
TRAINYARD_INSTANTIATE(float)
TRAINYARD_INSTANTIATE(double)

}  // namespace trainyard::kernels::reference
