#pragma once

#include <cstdint>

namespace trainyard::kernels::reference {

/// Returns the sum over i < count of a[i] * b[i], added in the order of i.
template <typename T>
T dot(int64_t count, const T* a, const T* b) {
  T sum = T(0);
  for (int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace trainyard::kernels::reference
