#include "kernels/movement.h"

namespace trainyard::kernels::reference {

template <typename T>
void copy(const Box<2>& box, const T* x, T* y) {
  for (int64_t i = 0; i < box.elements(); ++i) {
    const auto [x_at, y_at] = box.offsets_of(i);
    y[y_at] = x[x_at];
  }
}

template void copy<float>(const Box<2>&, const float*, float*);
template void copy<double>(const Box<2>&, const double*, double*);

}  // namespace trainyard::kernels::reference
