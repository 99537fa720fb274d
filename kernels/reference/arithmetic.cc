#include "kernels/arithmetic.h"

namespace trainyard::kernels::reference {

template <typename F, typename T>
void arithmetic(const Box<3>& box, const T* a, const T* b, T* y) {
  for (int64_t i = 0; i < box.elements(); ++i) {
    const auto [at_a, at_b, at_y] = box.offsets_of(i);
    y[at_y] = F::f(a[at_a], b[at_b]);
  }
}

template <typename F, typename T>
void arithmetic_grad(const Box<3>& box, const T* a, const T* b, const T* dy, T* da, T* db) {
  for (int64_t i = 0; i < box.elements(); ++i) {
    const auto [at_a, at_b, at_y] = box.offsets_of(i);
    const T slope = dy[at_y];  // da or db may be dy
    if (da != nullptr) da[at_y] = F::da(a[at_a], b[at_b], slope);
    if (db != nullptr) db[at_y] = F::db(a[at_a], b[at_b], slope);
  }
}

#define TRAINYARD_INSTANTIATE(F)                                                               \
  template void arithmetic<math::F, float>(const Box<3>&, const float*, const float*, float*); \
  template void arithmetic<math::F, double>(const Box<3>&, const double*, const double*, double*);
TRAINYARD_FOR_EACH_ARITHMETIC(TRAINYARD_INSTANTIATE)
#undef TRAINYARD_INSTANTIATE
#define TRAINYARD_INSTANTIATE(F)                                                              \
  template void arithmetic_grad<math::F, float>(const Box<3>&, const float*, const float*,    \
                                                const float*, float*, float*);                \
  template void arithmetic_grad<math::F, double>(const Box<3>&, const double*, const double*, \
                                                 const double*, double*, double*);
TRAINYARD_FOR_EACH_ARITHMETIC_GRAD(TRAINYARD_INSTANTIATE)
#undef TRAINYARD_INSTANTIATE

}  // namespace trainyard::kernels::reference
