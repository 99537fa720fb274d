#include "kernels/group_norm.h"

#include <algorithm>
#include <cmath>

namespace trainyard::kernels::reference {
namespace {

// Calls f(c, offset) for every value of a group.
template <typename F>
void for_group(const GroupNormDims& d, const ImageStrides& s, int64_t n, int64_t g, const F& f) {
  for (int64_t c = g * d.channels(); c < (g + 1) * d.channels(); ++c) {
    for (int64_t h = 0; h < d.x.H; ++h) {
      for (int64_t w = 0; w < d.x.W; ++w) f(c, s.at(n, c, h, w));
    }
  }
}

template <typename F>
void for_groups(const GroupNormDims& d, const F& f) {
  for (int64_t n = 0; n < d.x.N; ++n) {
    for (int64_t g = 0; g < d.groups; ++g) f(n, g);
  }
}

}  // namespace

template <typename T>
void group_norm_forward(const GroupNormDims& d, const ImageStrides& s, const T* x, const T* scale,
                        const T* b, T* y, T* mean, T* inv_std) {
  const T M = static_cast<T>(d.values());
  for_groups(d, [&](int64_t n, int64_t g) {
    T sum = T(0), squares = T(0);
    for_group(d, s, n, g, [&](int64_t, int64_t i) { sum += x[i]; });
    const T m = sum / M;
    for_group(d, s, n, g, [&](int64_t, int64_t i) { squares += (x[i] - m) * (x[i] - m); });
    const T inv = T(1) / std::sqrt(squares / M + static_cast<T>(d.epsilon));
    if (mean != nullptr) mean[n * d.groups + g] = m;
    if (inv_std != nullptr) inv_std[n * d.groups + g] = inv;
    for_group(d, s, n, g, [&](int64_t c, int64_t i) { y[i] = (x[i] - m) * inv * scale[c] + b[c]; });
  });
}

template <typename T>
void group_norm_backward(const GroupNormDims& d, const ImageStrides& s, const T* x, const T* scale,
                         const T* mean, const T* inv_std, const T* dy, T* dx, T* dscale, T* db) {
  const T M = static_cast<T>(d.values());
  if (dscale != nullptr) std::fill_n(dscale, d.x.C, T(0));
  if (db != nullptr) std::fill_n(db, d.x.C, T(0));
  for_groups(d, [&](int64_t n, int64_t g) {
    const T m = mean[n * d.groups + g], inv = inv_std[n * d.groups + g];
    T sum = T(0), products = T(0);
    for_group(d, s, n, g, [&](int64_t c, int64_t i) {
      const T xhat = (x[i] - m) * inv;
      sum += dy[i] * scale[c];
      products += dy[i] * scale[c] * xhat;
      if (dscale != nullptr) dscale[c] += dy[i] * xhat;
      if (db != nullptr) db[c] += dy[i];
    });
    if (dx == nullptr) return;
    for_group(d, s, n, g, [&](int64_t c, int64_t i) {
      const T xhat = (x[i] - m) * inv;
      dx[i] = inv * (dy[i] * scale[c] - sum / M - xhat * (products / M));
    });
  });
}

#define TRAINYARD_INSTANTIATE(T)                                                            \
  template void group_norm_forward<T>(const GroupNormDims&, const ImageStrides&, const T*,  \
                                      const T*, const T*, T*, T*, T*);                      \
  template void group_norm_backward<T>(const GroupNormDims&, const ImageStrides&, const T*, \
                                       const T*, const T*, const T*, const T*, T*, T*, T*);
TRAINYARD_INSTANTIATE(float)
TRAINYARD_INSTANTIATE(double)
#undef TRAINYARD_INSTANTIATE

}  // namespace trainyard::kernels::reference
