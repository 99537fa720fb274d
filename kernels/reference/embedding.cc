#include "kernels/embedding.h"

#include <algorithm>

namespace trainyard::kernels::reference {
namespace {

// Returns 1 / (the number of positions of sequence n that are averaged); 0 if there is none.
template <typename T>
T pool_weight(const SequencePoolDims& d, const int32_t* token, int64_t n) {
  if (token == nullptr) return T(1) / static_cast<T>(d.T);
  const int32_t* row = token + n * d.T;
  const auto count = d.T - std::count(row, row + d.T, d.padding);
  return count == 0 ? T(0) : T(1) / static_cast<T>(count);
}

bool counts(const SequencePoolDims& d, const int32_t* token, int64_t n, int64_t t) {
  if (d.mode != PoolMode::kMean) return t == d.position(token, n);
  return token == nullptr || token[n * d.T + t] != d.padding;
}

}  // namespace

template <typename T>
void to_index(int64_t count, const T* x, int32_t* index, Run<T>) {
  check_to_index(count, x, index);
  for (int64_t i = 0; i < count; ++i) index[i] = static_cast<int32_t>(x[i]);
}

template <typename T>
void gather(const GatherDims& d, const T* table, const int32_t* index, T* y, Run<T>) {
  check_gather(d, table, index, y);
  for (int64_t i = 0; i < d.count; ++i) {
    const int64_t row = d.row(index[i]);
    for (int64_t c = 0; c < d.width; ++c) {
      y[i * d.width + c] = row < 0 ? T(0) : table[row * d.width + c];
    }
  }
}

template <typename T>
void gather_backward(const GatherDims& d, const int32_t* index, const T* dy, T* dtable, Run<T>) {
  check_gather(d, dy, index, dtable);
  std::fill_n(dtable, d.rows * d.width, T(0));
  for (int64_t i = 0; i < d.count; ++i) {
    const int64_t row = d.row(index[i]);
    if (row < 0) continue;
    for (int64_t c = 0; c < d.width; ++c) dtable[row * d.width + c] += dy[i * d.width + c];
  }
}

template <typename T>
void add_positions(const PositionDims& d, const T* x, const T* position, const T* prefix, T* y,
                   Run<T>) {
  check_positions(d, x, position, prefix, y);
  const int64_t length = d.prefix + d.T;
  for (int64_t n = 0; n < d.N; ++n) {
    for (int64_t t = 0; t < length; ++t) {
      const T* in = t < d.prefix ? prefix + t * d.D : x + (n * d.T + t - d.prefix) * d.D;
      T* out = y + (n * length + t) * d.D;
      for (int64_t c = 0; c < d.D; ++c) out[c] = in[c] + position[t * d.D + c];
    }
  }
}

template <typename T>
void add_positions_backward(const PositionDims& d, const T* dy, T* dx, T* dposition, T* dprefix,
                            Run<T>) {
  check_positions_grad(d, dy);
  const int64_t length = d.prefix + d.T;
  for (int64_t t = 0; t < length; ++t) {
    for (int64_t c = 0; c < d.D; ++c) {
      T sum = T(0);
      for (int64_t n = 0; n < d.N; ++n) {
        const T g = dy[(n * length + t) * d.D + c];
        sum += g;
        if (dx != nullptr && t >= d.prefix) dx[(n * d.T + t - d.prefix) * d.D + c] = g;
      }
      if (dposition != nullptr) dposition[t * d.D + c] = sum;
      if (dprefix != nullptr && t < d.prefix) dprefix[t * d.D + c] = sum;
    }
  }
}

template <typename T>
void sequence_pool(const SequencePoolDims& d, const T* x, const int32_t* token, T* y, Run<T>) {
  check_sequence_pool(d, x, y);
  for (int64_t n = 0; n < d.N; ++n) {
    const T* rows = x + n * d.T * d.D;
    const bool mean = d.mode == PoolMode::kMean;
    const T weight = mean ? pool_weight<T>(d, token, n) : T(1);
    for (int64_t c = 0; c < d.D; ++c) {
      T sum = T(0);
      for (int64_t t = 0; t < d.T; ++t) {
        if (counts(d, token, n, t)) sum += rows[t * d.D + c];
      }
      y[n * d.D + c] = sum * weight;
    }
  }
}

template <typename T>
void sequence_pool_backward(const SequencePoolDims& d, const int32_t* token, const T* dy, T* dx,
                            Run<T>) {
  check_sequence_pool(d, dy, dx);
  for (int64_t n = 0; n < d.N; ++n) {
    const T weight = d.mode == PoolMode::kMean ? pool_weight<T>(d, token, n) : T(1);
    for (int64_t t = 0; t < d.T; ++t) {
      const bool is_counted = counts(d, token, n, t);
      for (int64_t c = 0; c < d.D; ++c) {
        dx[(n * d.T + t) * d.D + c] = is_counted ? dy[n * d.D + c] * weight : T(0);
      }
    }
  }
}

/// Returns the first position whose x is the maximum of column c of sequence n.
template <typename T>
int64_t position_of_max(const SequenceMaxDims& d, const T* x, const int32_t* token, int64_t n,
                        int64_t c) {
  const T* column = x + n * d.T * d.D + c;
  const int64_t end = d.counted(token == nullptr ? nullptr : token + n * d.S);
  int64_t best = 0;
  for (int64_t t = 1; t < end; ++t) {
    if (column[t * d.D] > column[best * d.D] || column[t * d.D] != column[t * d.D]) best = t;
  }
  return best;
}

template <typename T>
void sequence_max(const SequenceMaxDims& d, const T* x, const int32_t* token, T* y, Run<T>) {
  check_sequence_max(d, x, y);
  for (int64_t n = 0; n < d.N; ++n) {
    for (int64_t c = 0; c < d.D; ++c) {
      y[n * d.D + c] = x[(n * d.T + position_of_max(d, x, token, n, c)) * d.D + c];
    }
  }
}

template <typename T>
void sequence_max_backward(const SequenceMaxDims& d, const T* x, const int32_t* token, const T* dy,
                           T* dx, Run<T>) {
  check_sequence_max(d, x, dx);
  for (int64_t n = 0; n < d.N; ++n) {
    for (int64_t c = 0; c < d.D; ++c) {
      const int64_t best = position_of_max(d, x, token, n, c);
      for (int64_t t = 0; t < d.T; ++t) {
        dx[(n * d.T + t) * d.D + c] = t == best ? dy[n * d.D + c] : T(0);
      }
    }
  }
}

template <typename T>
void reverse_sequence(const ReverseDims& d, const T* x, const int32_t* length, T* y, Run<T>) {
  check_reverse_sequence(d, x, length, y);
  for (int64_t n = 0; n < d.N; ++n) {
    for (int64_t t = 0; t < d.T; ++t) {
      std::copy_n(x + (n * d.T + d.source(length, n, t)) * d.D, d.D, y + (n * d.T + t) * d.D);
    }
  }
}

template <typename T>
void sequence_lengths(const SequenceLengthDims& d, const int32_t* token, int32_t* length, Run<T>) {
  check_sequence_lengths(d, token, length);
  for (int64_t n = 0; n < d.N; ++n) length[n] = d.length(token, n);
}

#define TRAINYARD_INSTANTIATE(T)                                                                 \
  template void to_index<T>(int64_t, const T*, int32_t*, Run<T>);                                \
  template void gather<T>(const GatherDims&, const T*, const int32_t*, T*, Run<T>);              \
  template void gather_backward<T>(const GatherDims&, const int32_t*, const T*, T*, Run<T>);     \
  template void add_positions<T>(const PositionDims&, const T*, const T*, const T*, T*, Run<T>); \
  template void add_positions_backward<T>(const PositionDims&, const T*, T*, T*, T*, Run<T>);    \
  template void sequence_pool<T>(const SequencePoolDims&, const T*, const int32_t*, T*, Run<T>); \
  template void sequence_pool_backward<T>(const SequencePoolDims&, const int32_t*, const T*, T*, \
                                          Run<T>);                                               \
  template void sequence_max<T>(const SequenceMaxDims&, const T*, const int32_t*, T*, Run<T>);   \
  template void sequence_max_backward<T>(const SequenceMaxDims&, const T*, const int32_t*,       \
                                         const T*, T*, Run<T>);                                  \
  template void reverse_sequence<T>(const ReverseDims&, const T*, const int32_t*, T*, Run<T>);   \
  template void sequence_lengths<T>(const SequenceLengthDims&, const int32_t*, int32_t*, Run<T>);
TRAINYARD_INSTANTIATE(float)
TRAINYARD_INSTANTIATE(double)
#undef TRAINYARD_INSTANTIATE

}  // namespace trainyard::kernels::reference
