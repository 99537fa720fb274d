#include "kernels/elementwise.h"

namespace trainyard::kernels::reference {

template <typename T>
void fill(int64_t count, T value, T* y, Run<T>) {
  check_fill(count, y);
  for (int64_t i = 0; i < count; ++i) y[i] = value;
}

void copy(int64_t bytes, const std::byte* x, std::byte* y) {
  if (x == y) return;  // the memory plan placed both in the same memory
  for (int64_t i = 0; i < bytes; ++i) y[i] = x[i];
}

template void fill<float>(int64_t, float, float*, Run<float>);
template void fill<double>(int64_t, double, double*, Run<double>);

}  // namespace trainyard::kernels::reference
