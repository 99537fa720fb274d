#include "kernels/layout.h"

namespace trainyard::kernels::reference {
namespace {

// Both directions transpose an [a, b] matrix per image.
template <typename T>
void transpose(int64_t N, int64_t a, int64_t b, const T* x, T* y) {
  for (int64_t n = 0; n < N; ++n) {
    for (int64_t i = 0; i < a; ++i) {
      for (int64_t j = 0; j < b; ++j) y[(n * b + j) * a + i] = x[(n * a + i) * b + j];
    }
  }
}

}  // namespace

template <typename T>
void nchw_to_nhwc(ImageDims d, const T* x, T* y, Run<T>) {
  check(d, x, y);
  transpose(d.N, d.C, d.H * d.W, x, y);
}

template <typename T>
void nhwc_to_nchw(ImageDims d, const T* x, T* y, Run<T>) {
  check(d, x, y);
  transpose(d.N, d.H * d.W, d.C, x, y);
}

template void nchw_to_nhwc<float>(ImageDims, const float*, float*, Run<float>);
template void nchw_to_nhwc<double>(ImageDims, const double*, double*, Run<double>);
template void nhwc_to_nchw<float>(ImageDims, const float*, float*, Run<float>);
template void nhwc_to_nchw<double>(ImageDims, const double*, double*, Run<double>);

}  // namespace trainyard::kernels::reference
