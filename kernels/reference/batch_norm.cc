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

/// Applies y = max(0, y + residual) to channel c if `relu`.
template <typename T>
void add_relu(const ImageDims& d, const ImageStrides& s, int64_t c, bool relu, const T* residual,
              T* y) {
  if (!relu) return;
  for_each_value(d, s, c, [&](int64_t i) {
    y[i] = math::Relu::f(residual == nullptr ? y[i] : y[i] + residual[i]);
  });
}

template <typename T>
void differentiate(const BatchNormDims& d, const ImageStrides& s, const BatchNormGradOperands<T>& o,
                   const T* dy) {
  const T M = static_cast<T>(d.values_per_channel());
  for (int64_t c = 0; c < d.x.C; ++c) {
    const T m = o.mean[c], inv = o.inv_std[c];
    T sum = T(0), products = T(0);
    for_each_value(d.x, s, c, [&](int64_t i) {
      sum += dy[i];
      products += dy[i] * (o.x[i] - m) * inv;
    });
    if (o.db != nullptr) o.db[c] = sum;
    if (o.dscale != nullptr) o.dscale[c] = products;
    if (o.dx == nullptr) continue;
    for_each_value(d.x, s, c, [&](int64_t i) {
      o.dx[i] = o.scale[c] * inv * (dy[i] - sum / M - (o.x[i] - m) * inv * (products / M));
    });
  }
}

}  // namespace

template <typename T>
void batch_norm_training(const BatchNormDims& d, const ImageStrides& s,
                         const BatchNormTrainingOperands<T>& o, Run<T>) {
  check(d, o);
  const T M = static_cast<T>(d.values_per_channel());
  const T keep = static_cast<T>(d.momentum);
  for (int64_t c = 0; c < d.x.C; ++c) {
    T sum = T(0), squares = T(0);
    for_each_value(d.x, s, c, [&](int64_t i) { sum += o.x[i]; });
    const T m = sum / M;
    for_each_value(d.x, s, c, [&](int64_t i) { squares += (o.x[i] - m) * (o.x[i] - m); });
    const T var = squares / M;
    const T inv = T(1) / std::sqrt(var + static_cast<T>(d.epsilon));
    o.mean[c] = m;
    o.inv_std[c] = inv;
    o.running_mean[c] = keep * o.running_mean[c] + (T(1) - keep) * m;
    o.running_var[c] = keep * o.running_var[c] + (T(1) - keep) * (squares / (M - T(1)));
    for_each_value(d.x, s, c,
                   [&](int64_t i) { o.y[i] = (o.x[i] - m) * inv * o.scale[c] + o.b[c]; });
    add_relu(d.x, s, c, o.relu, o.residual, o.y);
  }
}

template <typename T>
void batch_norm_inference(const BatchNormDims& d, const ImageStrides& s,
                          const BatchNormInferenceOperands<T>& o, Run<T>) {
  check(d, o);
  for (int64_t c = 0; c < d.x.C; ++c) {
    const T inv = T(1) / std::sqrt(o.running_var[c] + static_cast<T>(d.epsilon));
    for_each_value(d.x, s, c, [&](int64_t i) {
      o.y[i] = (o.x[i] - o.running_mean[c]) * inv * o.scale[c] + o.b[c];
    });
    add_relu(d.x, s, c, o.relu, o.residual, o.y);
  }
}

template <typename T>
void batch_norm_replay(const BatchNormDims& d, const ImageStrides& s,
                       const BatchNormReplayOperands<T>& o, Run<T>) {
  check(d, o);
  for (int64_t c = 0; c < d.x.C; ++c) {
    for_each_value(d.x, s, c, [&](int64_t i) {
      T v = (o.x[i] - o.mean[c]) * o.inv_std[c] * o.scale[c] + o.b[c];
      if (o.residual != nullptr) v += o.residual[i];
      o.y[i] = o.relu ? math::Relu::f(v) : v;
    });
  }
}

template <typename T>
void batch_norm_backward(const BatchNormDims& d, const ImageStrides& s,
                         const BatchNormGradOperands<T>& o, Run<T> run) {
  check(d, o);
  if (!o.relu) return differentiate(d, s, o, o.dy);
  T* masked = o.g != nullptr    ? o.g
              : o.dx != nullptr ? o.dx
                                : workspace_of<T>("batch_norm_backward", run);
  for (int64_t c = 0; c < d.x.C; ++c) {
    for_each_value(d.x, s, c, [&](int64_t i) {
      const T out =
          o.y != nullptr ? o.y[i] : (o.x[i] - o.mean[c]) * o.inv_std[c] * o.scale[c] + o.b[c];
      masked[i] = math::Relu::df(out, o.dy[i]);
    });
  }
  differentiate<T>(d, s, o, masked);
}

#define INSTANTIATE(T)                                                                 \
  template void batch_norm_training<T>(const BatchNormDims&, const ImageStrides&,      \
                                       const BatchNormTrainingOperands<T>&, Run<T>);   \
  template void batch_norm_inference<T>(const BatchNormDims&, const ImageStrides&,     \
                                        const BatchNormInferenceOperands<T>&, Run<T>); \
  template void batch_norm_replay<T>(const BatchNormDims&, const ImageStrides&,        \
                                     const BatchNormReplayOperands<T>&, Run<T>);       \
  template void batch_norm_backward<T>(const BatchNormDims&, const ImageStrides&,      \
                                       const BatchNormGradOperands<T>&, Run<T>);
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

}  // namespace trainyard::kernels::reference
