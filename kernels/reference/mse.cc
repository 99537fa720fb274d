#include "kernels/mse.h"

namespace trainyard::kernels::reference {

template <typename T>
void mse_forward(int64_t count, const T* y, const T* t, T* loss) {
  double total = 0;
  for (int64_t i = 0; i < count; ++i) {
    const T error = y[i] - t[i];
    total += static_cast<double>(error) * static_cast<double>(error);
  }
  *loss = static_cast<T>(total / static_cast<double>(count));
}

template <typename T>
void mse_backward(int64_t count, const T* y, const T* t, const T* dloss, T* dy) {
  const T scale = *dloss * (T(2) / static_cast<T>(count));
  for (int64_t i = 0; i < count; ++i) dy[i] = scale * (y[i] - t[i]);
}

template void mse_forward<float>(int64_t, const float*, const float*, float*);
template void mse_forward<double>(int64_t, const double*, const double*, double*);
template void mse_backward<float>(int64_t, const float*, const float*, const float*, float*);
template void mse_backward<double>(int64_t, const double*, const double*, const double*, double*);

}  // namespace trainyard::kernels::reference
