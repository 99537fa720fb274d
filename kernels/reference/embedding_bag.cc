#include "kernels/embedding_bag.h"

#include <algorithm>

namespace trainyard::kernels::reference {
namespace {

template <typename T>
T scale_of(const EmbeddingBagDims& d, const int32_t* token) {
  const int64_t count = d.T - std::count(token, token + d.T, d.padding);
  return d.mean && count > 0 ? T(1) / static_cast<T>(count) : T(1);
}

}  // namespace

template <typename T>
void embedding_bag(const EmbeddingBagDims& d, const T* table, const int32_t* token, T* y, Run<T>) {
  check(d, table, token, y);
  for (int64_t n = 0; n < d.N; ++n, token += d.T, y += d.D) {
    const T scale = scale_of<T>(d, token);
    std::fill_n(y, d.D, T(0));
    for (int64_t t = 0; t < d.T; ++t) {
      if (token[t] == d.padding) continue;
      for (int64_t c = 0; c < d.D; ++c) y[c] += scale * table[token[t] * d.D + c];
    }
  }
}

template <typename T>
void embedding_bag_backward(const EmbeddingBagDims& d, const int32_t* token, const T* dy, T* dtable,
                            Run<T>) {
  check(d, token, dy, dtable);
  std::fill_n(dtable, d.V * d.D, T(0));
  for (int64_t n = 0; n < d.N; ++n, token += d.T, dy += d.D) {
    const T scale = scale_of<T>(d, token);
    for (int64_t t = 0; t < d.T; ++t) {
      if (token[t] == d.padding) continue;
      for (int64_t c = 0; c < d.D; ++c) dtable[token[t] * d.D + c] += scale * dy[c];
    }
  }
}

#define TRAINYARD_INSTANTIATE(T)                                                              \
  template void embedding_bag(const EmbeddingBagDims&, const T*, const int32_t*, T*, Run<T>); \
  template void embedding_bag_backward(const EmbeddingBagDims&, const int32_t*, const T*, T*, \
                                       Run<T>);
TRAINYARD_INSTANTIATE(float)
TRAINYARD_INSTANTIATE(double)
#undef TRAINYARD_INSTANTIATE

}  // namespace trainyard::kernels::reference
