#include "kernels/movement.h"

namespace trainyard::kernels::reference {

template <typename T>
void copy(const Box<2>& box, const T* x, T* y, Run<T>) {
  check_movement(x, y);
  for (int64_t i = 0; i < box.elements(); ++i) {
    const auto [x_at, y_at] = box.offsets_of(i);
    y[y_at] = x[x_at];
  }
}

template <typename T>
void scale(const Box<2>& box, double factor, const T* x, T* y, Run<T>) {
  check_movement(x, y);
  const auto by = static_cast<T>(factor);
  for (int64_t i = 0; i < box.elements(); ++i) {
    const auto [x_at, y_at] = box.offsets_of(i);
    y[y_at] = x[x_at] * by;
  }
}

template <typename T>
void zero(const Box<2>& box, T* y, Run<T>) {
  check_movement(y, y);
  for (int64_t i = 0; i < box.elements(); ++i) y[box.offsets_of(i)[1]] = T(0);
}

#define TRAINYARD_INSTANTIATE(T)                                       \
  template void copy<T>(const Box<2>&, const T*, T*, Run<T>);          \
  template void scale<T>(const Box<2>&, double, const T*, T*, Run<T>); \
  template void zero<T>(const Box<2>&, T*, Run<T>);
TRAINYARD_INSTANTIATE(float)
TRAINYARD_INSTANTIATE(double)
#undef TRAINYARD_INSTANTIATE

}  // namespace trainyard::kernels::reference
