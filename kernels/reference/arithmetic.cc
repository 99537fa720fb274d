#include "kernels/arithmetic.h"

namespace trainyard::kernels::reference {

template <typename F, typename T>
void arithmetic(const Box<3>& box, const T* a, const T* b, T* y, Run<T>) {
  check_arithmetic(a, b, y);
  for (int64_t i = 0; i < box.elements(); ++i) {
    const auto [at_a, at_b, at_y] = box.offsets_of(i);
    y[at_y] = F::f(a[at_a], b[at_b]);
  }
}

template <typename F, typename T>
void arithmetic_grad(const Box<3>& box, const T* a, const T* b, const T* dy, T* da, T* db, Run<T>) {
  check_arithmetic_grad(a, b, dy);
  for (int64_t i = 0; i < box.elements(); ++i) {
    const auto [at_a, at_b, at_y] = box.offsets_of(i);
    const T slope = dy[at_y];  // da or db may be dy
    if (da != nullptr) da[at_y] = F::da(a[at_a], b[at_b], slope);
    if (db != nullptr) db[at_y] = F::db(a[at_a], b[at_b], slope);
  }
}

#define TRAINYARD_INSTANTIATE_FOR(F, T) \
  template void arithmetic<math::F, T>(const Box<3>&, const T*, const T*, T*, Run<T>);
#define TRAINYARD_INSTANTIATE(F)      \
  TRAINYARD_INSTANTIATE_FOR(F, float) \
  TRAINYARD_INSTANTIATE_FOR(F, double)
TRAINYARD_FOR_EACH_ARITHMETIC(TRAINYARD_INSTANTIATE)
#undef TRAINYARD_INSTANTIATE_FOR
#define TRAINYARD_INSTANTIATE_FOR(F, T)                                                          \
  template void arithmetic_grad<math::F, T>(const Box<3>&, const T*, const T*, const T*, T*, T*, \
                                            Run<T>);
TRAINYARD_FOR_EACH_ARITHMETIC_GRAD(TRAINYARD_INSTANTIATE)
#undef TRAINYARD_INSTANTIATE_FOR
#undef TRAINYARD_INSTANTIATE

}  // namespace trainyard::kernels::reference
