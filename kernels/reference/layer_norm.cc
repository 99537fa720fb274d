#include "kernels/layer_norm.h"

#include <cmath>

namespace trainyard::kernels::reference {

template <typename T>
void layer_norm_forward(const LayerNormDims& d, const LayerNormOperands<T>& o, Run<T>) {
  check(d, o);
  const T W = static_cast<T>(d.width);
  for (int64_t n = 0; n < d.rows; ++n) {
    const T* x_row = o.x + n * d.width;
    T* y_row = o.y + n * d.width;
    T m = T(0), squares = T(0);
    if (!d.rms) {
      for (int64_t i = 0; i < d.width; ++i) m += x_row[i];
      m /= W;
    }
    for (int64_t i = 0; i < d.width; ++i) squares += (x_row[i] - m) * (x_row[i] - m);
    const T inv = T(1) / std::sqrt(squares / W + static_cast<T>(d.epsilon));
    if (o.mean != nullptr) o.mean[n] = m;
    if (o.inv_std != nullptr) o.inv_std[n] = inv;
    for (int64_t i = 0; i < d.width; ++i) {
      y_row[i] = (x_row[i] - m) * inv * o.scale[i] + (o.b == nullptr ? T(0) : o.b[i]);
    }
  }
}

template <typename T>
void layer_norm_backward(const LayerNormDims& d, const LayerNormGradOperands<T>& o, Run<T>) {
  check(d, o);
  const T W = static_cast<T>(d.width);
  for (int64_t i = 0; i < d.width; ++i) {
    if (o.dscale != nullptr) o.dscale[i] = T(0);
    if (o.db != nullptr) o.db[i] = T(0);
  }
  for (int64_t n = 0; n < d.rows; ++n) {
    const T* x_row = o.x + n * d.width;
    const T* dy_row = o.dy + n * d.width;
    const T m = d.rms ? T(0) : o.mean[n];
    const T inv = o.inv_std[n];
    T sum = T(0), products = T(0);
    for (int64_t i = 0; i < d.width; ++i) {
      const T xhat = (x_row[i] - m) * inv;
      sum += dy_row[i] * o.scale[i];
      products += dy_row[i] * o.scale[i] * xhat;
      if (o.dscale != nullptr) o.dscale[i] += dy_row[i] * xhat;
      if (o.db != nullptr) o.db[i] += dy_row[i];
    }
    if (o.dx == nullptr) continue;
    if (d.rms) sum = T(0);
    for (int64_t i = 0; i < d.width; ++i) {
      const T xhat = (x_row[i] - m) * inv;
      o.dx[n * d.width + i] = inv * (dy_row[i] * o.scale[i] - sum / W - xhat * (products / W));
    }
  }
}

#define TRAINYARD_INSTANTIATE(T)                                                                  \
  template void layer_norm_forward<T>(const LayerNormDims&, const LayerNormOperands<T>&, Run<T>); \
  template void layer_norm_backward<T>(const LayerNormDims&, const LayerNormGradOperands<T>&,     \
                                       Run<T>);
TRAINYARD_INSTANTIATE(float)
TRAINYARD_INSTANTIATE(double)
#undef TRAINYARD_INSTANTIATE

}  // namespace trainyard::kernels::reference
