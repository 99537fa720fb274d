#include "kernels/matmul.h"

#include <algorithm>

namespace trainyard::kernels::reference {

template <typename T>
void matmul_forward(const MatMulBatch& d, const T* a, const T* b, T* c) {
  for (size_t p = 0; p < d.a_of.size(); ++p) {
    const T* left = a + d.a_of[p] * d.M * d.K;
    const T* right = b + d.b_of[p] * d.K * d.N;
    T* out = c + static_cast<int64_t>(p) * d.M * d.N;
    for (int64_t m = 0; m < d.M; ++m) {
      for (int64_t n = 0; n < d.N; ++n) {
        T sum = T(0);
        for (int64_t k = 0; k < d.K; ++k) sum += left[m * d.K + k] * right[k * d.N + n];
        out[m * d.N + n] = sum;
      }
    }
  }
}

template <typename T>
void matmul_backward(const MatMulBatch& d, const T* a, const T* b, const T* dc, T* da, T* db) {
  if (da != nullptr) std::fill_n(da, d.a_count * d.M * d.K, T(0));
  if (db != nullptr) std::fill_n(db, d.b_count * d.K * d.N, T(0));
  for (size_t p = 0; p < d.a_of.size(); ++p) {
    const int64_t left = d.a_of[p] * d.M * d.K, right = d.b_of[p] * d.K * d.N;
    const T* gradient = dc + static_cast<int64_t>(p) * d.M * d.N;
    for (int64_t m = 0; m < d.M; ++m) {
      for (int64_t k = 0; k < d.K; ++k) {
        for (int64_t n = 0; n < d.N; ++n) {
          const T g = gradient[m * d.N + n];
          if (da != nullptr) da[left + m * d.K + k] += g * b[right + k * d.N + n];
          if (db != nullptr) db[right + k * d.N + n] += g * a[left + m * d.K + k];
        }
      }
    }
  }
}

#define TRAINYARD_INSTANTIATE(T)                                               \
  template void matmul_forward<T>(const MatMulBatch&, const T*, const T*, T*); \
  template void matmul_backward<T>(const MatMulBatch&, const T*, const T*, const T*, T*, T*);
TRAINYARD_INSTANTIATE(float)
TRAINYARD_INSTANTIATE(double)
#undef TRAINYARD_INSTANTIATE

}  // namespace trainyard::kernels::reference
