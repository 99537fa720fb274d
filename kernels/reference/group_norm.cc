#include "kernels/group_norm.h"

#include <algorithm>
#include <cmath>

namespace trainyard::kernels::reference {
namespace {

// Calls f(c, offset) for every value of group g of sample n.
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
void group_norm_forward(const GroupNormDims& d, const ImageStrides& s,
                        const GroupNormOperands<T>& o, Run<T>) {
  check(d, o);
  const T M = static_cast<T>(d.values());
  for_groups(d, [&](int64_t n, int64_t g) {
    T sum = T(0), squares = T(0);
    for_group(d, s, n, g, [&](int64_t, int64_t i) { sum += o.x[i]; });
    const T m = sum / M;
    for_group(d, s, n, g, [&](int64_t, int64_t i) { squares += (o.x[i] - m) * (o.x[i] - m); });
    const T inv = T(1) / std::sqrt(squares / M + static_cast<T>(d.epsilon));
    if (o.mean != nullptr) o.mean[n * d.groups + g] = m;
    if (o.inv_std != nullptr) o.inv_std[n * d.groups + g] = inv;
    for_group(d, s, n, g,
              [&](int64_t c, int64_t i) { o.y[i] = (o.x[i] - m) * inv * o.scale[c] + o.b[c]; });
  });
}

template <typename T>
void group_norm_backward(const GroupNormDims& d, const ImageStrides& s,
                         const GroupNormGradOperands<T>& o, Run<T>) {
  check(d, o);
  const T M = static_cast<T>(d.values());
  if (o.dscale != nullptr) std::fill_n(o.dscale, d.x.C, T(0));
  if (o.db != nullptr) std::fill_n(o.db, d.x.C, T(0));
  for_groups(d, [&](int64_t n, int64_t g) {
    const T m = o.mean[n * d.groups + g], inv = o.inv_std[n * d.groups + g];
    T sum = T(0), products = T(0);
    for_group(d, s, n, g, [&](int64_t c, int64_t i) {
      const T xhat = (o.x[i] - m) * inv;
      sum += o.dy[i] * o.scale[c];
      products += o.dy[i] * o.scale[c] * xhat;
      if (o.dscale != nullptr) o.dscale[c] += o.dy[i] * xhat;
      if (o.db != nullptr) o.db[c] += o.dy[i];
    });
    if (o.dx == nullptr) return;
    for_group(d, s, n, g, [&](int64_t c, int64_t i) {
      const T xhat = (o.x[i] - m) * inv;
      o.dx[i] = inv * (o.dy[i] * o.scale[c] - sum / M - xhat * (products / M));
    });
  });
}

#define TRAINYARD_INSTANTIATE(T)                                                  \
  template void group_norm_forward<T>(const GroupNormDims&, const ImageStrides&,  \
                                      const GroupNormOperands<T>&, Run<T>);       \
  template void group_norm_backward<T>(const GroupNormDims&, const ImageStrides&, \
                                       const GroupNormGradOperands<T>&, Run<T>);
TRAINYARD_INSTANTIATE(float)
TRAINYARD_INSTANTIATE(double)
#undef TRAINYARD_INSTANTIATE

}  // namespace trainyard::kernels::reference
