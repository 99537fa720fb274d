#include "kernels/batch_norm.h"

#include <cmath>

#include "kernels/math/activations.h"

namespace trainyard::kernels::reference {
namespace {

// Calls f(offset) for each value of channel c, in the order n, h, w.
template <typename F>
void for_each_value(const ImageDims& d, const ImageStrides& s, int64_t c, const F& f) {
  for (int64_t n = 0; n < d.N; ++n) {
    for (int64_t h = 0; h < d.H; ++h) {
      for (int64_t w = 0; w < d.W; ++w) f(s.at(n, c, h, w));
    }
  }
}

}  // namespace

template <typename T>
void batch_norm_training(const BatchNormDims& d, const ImageStrides& s, const T* x, const T* scale,
                         const T* b, T* running_mean, T* running_var, T* y, T* mean, T* inv_std) {
  const T M = static_cast<T>(d.values_per_channel());
  const T keep = static_cast<T>(d.momentum);
  for (int64_t c = 0; c < d.x.C; ++c) {
    T sum = T(0), squares = T(0);
    for_each_value(d.x, s, c, [&](int64_t i) { sum += x[i]; });
    const T m = sum / M;
    for_each_value(d.x, s, c, [&](int64_t i) { squares += (x[i] - m) * (x[i] - m); });
    const T var = squares / M;
    const T inv = T(1) / std::sqrt(var + static_cast<T>(d.epsilon));
    mean[c] = m;
    inv_std[c] = inv;
    running_mean[c] = keep * running_mean[c] + (T(1) - keep) * m;
    running_var[c] = keep * running_var[c] + (T(1) - keep) * (squares / (M - T(1)));
    for_each_value(d.x, s, c, [&](int64_t i) { y[i] = (x[i] - m) * inv * scale[c] + b[c]; });
  }
}

template <typename T>
void batch_norm_inference(const BatchNormDims& d, const ImageStrides& s, const T* x, const T* scale,
                          const T* b, const T* running_mean, const T* running_var, T* y) {
  for (int64_t c = 0; c < d.x.C; ++c) {
    const T inv = T(1) / std::sqrt(running_var[c] + static_cast<T>(d.epsilon));
    for_each_value(d.x, s, c,
                   [&](int64_t i) { y[i] = (x[i] - running_mean[c]) * inv * scale[c] + b[c]; });
  }
}

template <typename T>
void batch_norm_backward(const BatchNormDims& d, const ImageStrides& s, const T* x, const T* dy,
                         const T* scale, const T* mean, const T* inv_std, T* dx, T* dscale, T* db) {
  const T M = static_cast<T>(d.values_per_channel());
  for (int64_t c = 0; c < d.x.C; ++c) {
    const T m = mean[c], inv = inv_std[c];
    T sum = T(0), products = T(0);
    for_each_value(d.x, s, c, [&](int64_t i) {
      sum += dy[i];
      products += dy[i] * (x[i] - m) * inv;
    });
    if (db != nullptr) db[c] = sum;
    if (dscale != nullptr) dscale[c] = products;
    if (dx == nullptr) continue;
    for_each_value(d.x, s, c, [&](int64_t i) {
      dx[i] = scale[c] * inv * (dy[i] - sum / M - (x[i] - m) * inv * (products / M));
    });
  }
}

template <typename T>
void batch_norm_replay(const BatchNormDims& d, const ImageStrides& s, const T* x, const T* scale,
                       const T* b, const T* mean, const T* inv_std, const T* residual, bool relu,
                       T* y) {
  for (int64_t c = 0; c < d.x.C; ++c) {
    for_each_value(d.x, s, c, [&](int64_t i) {
      T v = (x[i] - mean[c]) * inv_std[c] * scale[c] + b[c];
      if (residual != nullptr) v += residual[i];
      y[i] = relu ? math::Relu::f(v) : v;
    });
  }
}

template <typename T>
void add_relu(int64_t count, const T* residual, T* y) {
  for (int64_t i = 0; i < count; ++i) {
    y[i] = math::Relu::f(residual == nullptr ? y[i] : y[i] + residual[i]);
  }
}

template <typename T>
void batch_norm_relu_backward(const BatchNormDims& d, const ImageStrides& s, const T* x,
                              const T* dy, const T* scale, const T* mean, const T* inv_std,
                              const T* b, const T* y, T* dx, T* dscale, T* db, T* g, T* spare) {
  T* masked = g != nullptr ? g : dx != nullptr ? dx : spare;
  for (int64_t c = 0; c < d.x.C; ++c) {
    for_each_value(d.x, s, c, [&](int64_t i) {
      const T out = y != nullptr ? y[i] : (x[i] - mean[c]) * inv_std[c] * scale[c] + b[c];
      masked[i] = math::Relu::df(out, dy[i]);
    });
  }
  batch_norm_backward<T>(d, s, x, masked, scale, mean, inv_std, dx, dscale, db);
}

#define INSTANTIATE(T)                                                                            \
  template void batch_norm_training<T>(const BatchNormDims&, const ImageStrides&, const T*,       \
                                       const T*, const T*, T*, T*, T*, T*, T*);                   \
  template void batch_norm_inference<T>(const BatchNormDims&, const ImageStrides&, const T*,      \
                                        const T*, const T*, const T*, const T*, T*);              \
  template void batch_norm_backward<T>(const BatchNormDims&, const ImageStrides&, const T*,       \
                                       const T*, const T*, const T*, const T*, T*, T*, T*);       \
  template void batch_norm_replay<T>(const BatchNormDims&, const ImageStrides&, const T*,         \
                                     const T*, const T*, const T*, const T*, const T*, bool, T*); \
  template void add_relu<T>(int64_t, const T*, T*);                                               \
  template void batch_norm_relu_backward<T>(const BatchNormDims&, const ImageStrides&, const T*,  \
                                            const T*, const T*, const T*, const T*, const T*,     \
                                            const T*, T*, T*, T*, T*, T*);
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

}  // namespace trainyard::kernels::reference
