#include "kernels/gemm.h"

namespace trainyard::kernels::reference {

template <typename T>
void gemm_forward(GemmDims d, const T* x, const T* w, const T* b, T* y) {
  check(d, x, w, y);
  for (int64_t n = 0; n < d.N; ++n) {
    for (int64_t k = 0; k < d.K; ++k) {
      T sum = b == nullptr ? T(0) : b[k];
      for (int64_t f = 0; f < d.F; ++f) sum += x[n * d.F + f] * w[k * d.F + f];
      y[n * d.K + k] = d.adds ? y[n * d.K + k] + sum : sum;
    }
  }
}

template <typename T>
void gemm_backward(GemmDims d, const T* x, const T* w, const T* dy, T* dx, T* dw, T* db) {
  check(d, x, w, dy, dx, dw);
  if (dx != nullptr) {
    for (int64_t n = 0; n < d.N; ++n) {
      for (int64_t f = 0; f < d.F; ++f) {
        T sum = T(0);
        for (int64_t k = 0; k < d.K; ++k) sum += dy[n * d.K + k] * w[k * d.F + f];
        dx[n * d.F + f] = d.adds ? dx[n * d.F + f] + sum : sum;
      }
    }
  }
  for (int64_t k = 0; k < d.K; ++k) {
    if (dw != nullptr) {
      for (int64_t f = 0; f < d.F; ++f) {
        T sum = T(0);
        for (int64_t n = 0; n < d.N; ++n) sum += dy[n * d.K + k] * x[n * d.F + f];
        dw[k * d.F + f] = sum;
      }
    }
    if (db != nullptr) {
      T sum = T(0);
      for (int64_t n = 0; n < d.N; ++n) sum += dy[n * d.K + k];
      db[k] = sum;
    }
  }
}

#define TRAINYARD_INSTANTIATE(T)                                             \
  template void gemm_forward<T>(GemmDims, const T*, const T*, const T*, T*); \
  template void gemm_backward<T>(GemmDims, const T*, const T*, const T*, T*, T*, T*);
TRAINYARD_INSTANTIATE(float)
TRAINYARD_INSTANTIATE(double)
#undef TRAINYARD_INSTANTIATE

}  // namespace trainyard::kernels::reference
