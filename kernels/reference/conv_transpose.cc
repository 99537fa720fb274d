#include "kernels/conv_transpose.h"

namespace trainyard::kernels::reference {

template <typename T>
void conv_transpose_forward(const ConvDims& d, const ImageStrides& xs, const T* x, const T* w,
                            const T* b, const ImageStrides& ys, T* y) {
  conv_backward_data<T>(d, xs, x, w, ys, y);
  if (b == nullptr) return;
  for (int64_t n = 0; n < d.x.N; ++n) {
    for (int64_t k = 0; k < d.x.C; ++k) {
      for (int64_t h = 0; h < d.x.H; ++h) {
        for (int64_t iw = 0; iw < d.x.W; ++iw) y[ys.at(n, k, h, iw)] += b[k];
      }
    }
  }
}

template <typename T>
void conv_transpose_backward_data(const ConvDims& d, const ImageStrides& ys, const T* dy,
                                  const T* w, const ImageStrides& xs, T* dx) {
  conv_forward<T>(d, ys, dy, w, nullptr, xs, dx);
}

template <typename T>
void conv_transpose_backward_weights(const ConvDims& d, const ImageStrides& xs, const T* x,
                                     const ImageStrides& ys, const T* dy, T* dw, T* db) {
  if (dw != nullptr) conv_backward_weights<T>(d, ys, dy, xs, x, dw, nullptr);
  if (db == nullptr) return;
  for (int64_t k = 0; k < d.x.C; ++k) {
    T sum = T(0);
    for (int64_t n = 0; n < d.x.N; ++n) {
      for (int64_t h = 0; h < d.x.H; ++h) {
        for (int64_t iw = 0; iw < d.x.W; ++iw) sum += dy[ys.at(n, k, h, iw)];
      }
    }
    db[k] = sum;
  }
}

#define INSTANTIATE(T)                                                                             \
  template void conv_transpose_forward<T>(const ConvDims&, const ImageStrides&, const T*,          \
                                          const T*, const T*, const ImageStrides&, T*);            \
  template void conv_transpose_backward_data<T>(const ConvDims&, const ImageStrides&, const T*,    \
                                                const T*, const ImageStrides&, T*);                \
  template void conv_transpose_backward_weights<T>(const ConvDims&, const ImageStrides&, const T*, \
                                                   const ImageStrides&, const T*, T*, T*);
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

}  // namespace trainyard::kernels::reference
