#include "kernels/resample.h"

namespace trainyard::kernels::reference {
namespace {

template <typename T>
void fill_row(const ResampledAxis& axis, T value, T* y) {
  for (int64_t i = 0; i < axis.size; ++i) y[i * axis.y_stride] = value;
}

// y += weight * x, along the innermost axis.
template <typename T>
void add_row(const ResampledAxis& axis, T weight, const T* x, T* y) {
  if (!axis.is_plain()) {
    for (int64_t i = 0; i < axis.size; ++i) {
      T sum = T(0);
      const auto first = static_cast<size_t>(axis.begin[static_cast<size_t>(i)]);
      const auto last = static_cast<size_t>(axis.begin[static_cast<size_t>(i) + 1]);
      for (size_t k = first; k < last; ++k) {
        sum += static_cast<T>(axis.weight[k]) * x[axis.from[k] * axis.x_stride];
      }
      y[i * axis.y_stride] += weight * sum;
    }
  } else if (axis.x_stride == 1 && axis.y_stride == 1) {
    for (int64_t i = 0; i < axis.size; ++i) y[i] += weight * x[i];
  } else {
    for (int64_t i = 0; i < axis.size; ++i) y[i * axis.y_stride] += weight * x[i * axis.x_stride];
  }
}

// Adds the contributions of axis `a`'s entries, and of all axes inside it, to one row of y. `index`
// is the row's index in y, by axis. Returns false if a list is empty.
template <typename T>
bool add_entries(const ResampleParams& p, size_t a, const std::vector<int64_t>& index, T weight,
                 const T* x, T* y) {
  const ResampledAxis& axis = p.axes[a];
  if (a + 1 == p.axes.size()) {
    add_row(axis, weight, x, y);
    return true;
  }
  if (axis.is_plain()) {
    return add_entries(p, a + 1, index, weight, x + index[a] * axis.x_stride, y);
  }
  const auto first = static_cast<size_t>(axis.begin[static_cast<size_t>(index[a])]);
  const auto last = static_cast<size_t>(axis.begin[static_cast<size_t>(index[a]) + 1]);
  bool all = first < last;
  for (size_t k = first; k < last && all; ++k) {
    all = add_entries(p, a + 1, index, weight * static_cast<T>(axis.weight[k]),
                      x + axis.from[k] * axis.x_stride, y);
  }
  return all;
}

}  // namespace

template <typename T>
void resample(const ResampleParams& p, int64_t begin, int64_t end, const T* x, T* y) {
  const ResampledAxis& inner = p.axes.back();
  std::vector<int64_t> index(p.axes.size());
  for (int64_t row = begin; row < end; ++row) {
    int64_t rest = row, at = 0;
    for (size_t a = p.axes.size() - 1; a-- > 0;) {
      index[a] = rest % p.axes[a].size;
      rest /= p.axes[a].size;
      at += index[a] * p.axes[a].y_stride;
    }
    fill_row(inner, T(0), y + at);
    if (!add_entries(p, 0, index, T(1), x, y + at)) {
      fill_row(inner, static_cast<T>(p.fill), y + at);
      continue;
    }
    if (inner.is_plain() || p.fill == 0) continue;
    for (int64_t i = 0; i < inner.size; ++i) {
      const auto k = static_cast<size_t>(i);
      if (inner.begin[k] == inner.begin[k + 1]) {
        y[at + i * inner.y_stride] = static_cast<T>(p.fill);
      }
    }
  }
}

template <typename T>
void resample(const ResampleParams& p, const T* x, T* y, Run<T>) {
  check(p, x, y);
  resample(p, 0, p.rows(), x, y);
}

#define TRAINYARD_INSTANTIATE(T)                                                    \
  template void resample<T>(const ResampleParams&, int64_t, int64_t, const T*, T*); \
  template void resample<T>(const ResampleParams&, const T*, T*, Run<T>);
TRAINYARD_INSTANTIATE(float)
TRAINYARD_INSTANTIATE(double)
#undef TRAINYARD_INSTANTIATE

}  // namespace trainyard::kernels::reference
