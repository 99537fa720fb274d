#include "kernels/elementwise.h"

namespace trainyard::kernels::reference {

template <typename T>
void add(int64_t count, const T* a, const T* b, T* c) {
  for (int64_t i = 0; i < count; ++i) c[i] = a[i] + b[i];
}

template <typename T>
void fill(int64_t count, T value, T* y) {
  for (int64_t i = 0; i < count; ++i) y[i] = value;
}

void copy(int64_t bytes, const std::byte* x, std::byte* y) {
  if (x == y) return;  // the plan gave both the same memory
  for (int64_t i = 0; i < bytes; ++i) y[i] = x[i];
}

template void add<float>(int64_t, const float*, const float*, float*);
template void add<double>(int64_t, const double*, const double*, double*);
template void fill<float>(int64_t, float, float*);
template void fill<double>(int64_t, double, double*);

}  // namespace trainyard::kernels::reference
