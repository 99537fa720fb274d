#include "kernels/layer_norm.h"

#include <cmath>

namespace trainyard::kernels::reference {

template <typename T>
void layer_norm_forward(const LayerNormDims& d, const T* x, const T* scale, const T* b, T* y,
                        T* mean, T* inv_std) {
  const T W = static_cast<T>(d.width);
  for (int64_t n = 0; n < d.rows; ++n) {
    const T* x_row = x + n * d.width;
    T* y_row = y + n * d.width;
    T m = T(0), squares = T(0);
    if (!d.rms) {
      for (int64_t i = 0; i < d.width; ++i) m += x_row[i];
      m /= W;
    }
    for (int64_t i = 0; i < d.width; ++i) squares += (x_row[i] - m) * (x_row[i] - m);
    const T inv = T(1) / std::sqrt(squares / W + static_cast<T>(d.epsilon));
    if (mean != nullptr) mean[n] = m;
    if (inv_std != nullptr) inv_std[n] = inv;
    for (int64_t i = 0; i < d.width; ++i) {
      y_row[i] = (x_row[i] - m) * inv * scale[i] + (b == nullptr ? T(0) : b[i]);
    }
  }
}

template <typename T>
void layer_norm_backward(const LayerNormDims& d, const T* x, const T* scale, const T* mean,
                         const T* inv_std, const T* dy, T* dx, T* dscale, T* db) {
  const T W = static_cast<T>(d.width);
  for (int64_t i = 0; i < d.width; ++i) {
    if (dscale != nullptr) dscale[i] = T(0);
    if (db != nullptr) db[i] = T(0);
  }
  for (int64_t n = 0; n < d.rows; ++n) {
    const T* x_row = x + n * d.width;
    const T* dy_row = dy + n * d.width;
    const T m = d.rms ? T(0) : mean[n];
    const T inv = inv_std[n];
    T sum = T(0), products = T(0);
    for (int64_t i = 0; i < d.width; ++i) {
      const T xhat = (x_row[i] - m) * inv;
      sum += dy_row[i] * scale[i];
      products += dy_row[i] * scale[i] * xhat;
      if (dscale != nullptr) dscale[i] += dy_row[i] * xhat;
      if (db != nullptr) db[i] += dy_row[i];
    }
    if (dx == nullptr) continue;
    if (d.rms) sum = T(0);
    for (int64_t i = 0; i < d.width; ++i) {
      const T xhat = (x_row[i] - m) * inv;
      dx[n * d.width + i] = inv * (dy_row[i] * scale[i] - sum / W - xhat * (products / W));
    }
  }
}

#define TRAINYARD_INSTANTIATE(T)                                                                  \
  template void layer_norm_forward<T>(const LayerNormDims&, const T*, const T*, const T*, T*, T*, \
                                      T*);                                                        \
  template void layer_norm_backward<T>(const LayerNormDims&, const T*, const T*, const T*,        \
                                       const T*, const T*, T*, T*, T*);
TRAINYARD_INSTANTIATE(float)
TRAINYARD_INSTANTIATE(double)
#undef TRAINYARD_INSTANTIATE

}  // namespace trainyard::kernels::reference
