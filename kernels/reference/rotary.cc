#include "kernels/rotary.h"

#include <cmath>

namespace trainyard::kernels::reference {

template <typename T>
void rotary_tables(const RotaryTableParams& p, const int32_t* positions, T* cos, T* sin, Run<T>) {
  check_rotary_tables(p, cos, sin);
  for (int64_t r = 0; r < p.rows; ++r) {
    const T position = static_cast<T>(positions == nullptr ? r : positions[r]);
    for (const double frequency : p.frequencies) {
      const T angle = position * static_cast<T>(frequency);
      *cos++ = std::cos(angle) * static_cast<T>(p.factor);
      *sin++ = std::sin(angle) * static_cast<T>(p.factor);
    }
  }
}

template <typename T>
void rotary(const RotaryDims& d, const RotaryOperands<T>& o, Run<T>) {
  check(d, o);
  for (int64_t r = 0; r < d.rows; ++r) {
    const int64_t at = (o.positions == nullptr ? r % d.table_rows : o.positions[r]) * d.pairs;
    for (int64_t h = 0; h < d.H; ++h) {
      const T* x = o.x + (r * d.H + h) * d.D;
      T* y = o.y + (r * d.H + h) * d.D;
      for (int64_t j = 0; j < d.pairs; ++j) {
        const T cos = o.cos[at + j], sin = d.inverse ? -o.sin[at + j] : o.sin[at + j];
        const int64_t i = j * d.step(), k = i + d.second();
        const T first = x[i], second = x[k];
        y[i] = cos * first - sin * second;
        y[k] = sin * first + cos * second;
      }
      for (int64_t i = 2 * d.pairs; i < d.D; ++i) y[i] = x[i];
    }
  }
}

#define TRAINYARD_INSTANTIATE(T)                                                            \
  template void rotary_tables<T>(const RotaryTableParams&, const int32_t*, T*, T*, Run<T>); \
  template void rotary<T>(const RotaryDims&, const RotaryOperands<T>&, Run<T>);
TRAINYARD_INSTANTIATE(float)
TRAINYARD_INSTANTIATE(double)
#undef TRAINYARD_INSTANTIATE

}  // namespace trainyard::kernels::reference
