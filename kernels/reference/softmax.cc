#include "kernels/softmax.h"

#include <algorithm>
#include <cmath>

namespace trainyard::kernels::reference {
namespace {

// Calls f(first, stride) for each vector of `width` elements that softmax normalizes.
template <typename F>
void for_each_span(const SoftmaxDims& d, const F& f) {
  for (int64_t o = 0; o < d.outer; ++o) {
    for (int64_t i = 0; i < d.inner; ++i) f(o * d.width * d.inner + i, d.inner);
  }
}

}  // namespace

template <typename T>
void softmax_forward(const SoftmaxDims& d, const T* x, T* y, Run<T>) {
  check(d, x, y);
  for_each_span(d, [&](int64_t first, int64_t stride) {
    const T* in = x + first;
    T* out = y + first;
    T max = in[0], sum = T(0);
    for (int64_t k = 1; k < d.width; ++k) max = std::max(max, in[k * stride]);
    for (int64_t k = 0; k < d.width; ++k) sum += std::exp(in[k * stride] - max);
    const T log_sum = std::log(sum);
    for (int64_t k = 0; k < d.width; ++k) {
      const T shifted = in[k * stride] - max;
      out[k * stride] = d.log ? shifted - log_sum : std::exp(shifted) / sum;
    }
  });
}

template <typename T>
void softmax_backward(const SoftmaxDims& d, const T* y, const T* dy, T* dx, Run<T>) {
  check(d, y, dy, dx);
  for_each_span(d, [&](int64_t first, int64_t stride) {
    T sum = T(0);
    for (int64_t k = 0; k < d.width; ++k) {
      const int64_t i = first + k * stride;
      sum += d.log ? dy[i] : dy[i] * y[i];
    }
    for (int64_t k = 0; k < d.width; ++k) {
      const int64_t i = first + k * stride;
      dx[i] = d.log ? dy[i] - std::exp(y[i]) * sum : y[i] * (dy[i] - sum);
    }
  });
}

#define TRAINYARD_INSTANTIATE(T)                                              \
  template void softmax_forward<T>(const SoftmaxDims&, const T*, T*, Run<T>); \
  template void softmax_backward<T>(const SoftmaxDims&, const T*, const T*, T*, Run<T>);
TRAINYARD_INSTANTIATE(float)
TRAINYARD_INSTANTIATE(double)
#undef TRAINYARD_INSTANTIATE

}  // namespace trainyard::kernels::reference
