#include "kernels/reduce.h"

#include <cmath>
#include <limits>

namespace trainyard::kernels::reference {

template <typename T>
void reduce(const ReduceParams& p, const T* x, T* y, Run<T>) {
  check(p, x, y);
  const int64_t count = p.reduced.elements();
  for (int64_t i = 0; i < p.kept.elements(); ++i) {
    const auto [x_at, y_at] = p.kept.offsets_of(i);
    const T* from = x + x_at;
    T value = p.how == Reduction::kMin || p.how == Reduction::kMax ? from[0] : T(0);
    for (int64_t k = 0; k < count; ++k) {
      const T v = from[p.reduced.offsets_of(k)[0]];
      switch (p.how) {
        case Reduction::kSum:
          value += v;
          break;
        case Reduction::kL2:
          value += v * v;
          break;
        case Reduction::kMin:
          value = v < value || v != v ? v : value;
          break;
        case Reduction::kMax:
          value = v > value || v != v ? v : value;
          break;
      }
    }
    if (p.how == Reduction::kSum) value *= static_cast<T>(p.factor);
    if (p.how == Reduction::kL2) value = std::sqrt(value);
    y[y_at] = value;
  }
}

template <typename T>
void reduce_grad(const ReduceParams& p, const T* x, const T* y, const T* dy, T* dx, Run<T>) {
  check(p, x, y, dy, dx);
  const int64_t count = p.reduced.elements();
  for (int64_t i = 0; i < p.kept.elements(); ++i) {
    const auto [x_at, y_at] = p.kept.offsets_of(i);
    T slope = dy[y_at];
    if (p.how == Reduction::kL2) slope = y[y_at] == T(0) ? T(0) : slope / y[y_at];
    if (p.how != Reduction::kL2) {
      int64_t equal = 0;
      for (int64_t k = 0; k < count; ++k) {
        equal += x[x_at + p.reduced.offsets_of(k)[0]] == y[y_at] ? 1 : 0;
      }
      slope /= static_cast<T>(equal);
    }
    for (int64_t k = 0; k < count; ++k) {
      const int64_t at = x_at + p.reduced.offsets_of(k)[0];
      dx[at] = p.how == Reduction::kL2 ? slope * x[at] : (x[at] == y[y_at] ? slope : T(0));
    }
  }
}

#define TRAINYARD_INSTANTIATE(T)                                      \
  template void reduce<T>(const ReduceParams&, const T*, T*, Run<T>); \
  template void reduce_grad<T>(const ReduceParams&, const T*, const T*, const T*, T*, Run<T>);
TRAINYARD_INSTANTIATE(float)
TRAINYARD_INSTANTIATE(double)
#undef TRAINYARD_INSTANTIATE

}  // namespace trainyard::kernels::reference
