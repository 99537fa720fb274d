#include "kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/reference/dot.h"

namespace trainyard::kernels::reference {
namespace {

// The vectors of one head of one sequence, indexed by position.
template <typename T>
struct Rows {
  T* base;
  int64_t row;
  T* operator[](int64_t t) const { return base + t * row; }
};

/// Returns the keys that query i of sequence n sees.
math::KeyRange keys_of(const AttentionDims& d, const SeenKeys& seen, int64_t n, int64_t i) {
  const int32_t* position = seen.positions == nullptr ? nullptr : seen.positions + n * d.Tq + i;
  const int32_t* count = seen.key_counts == nullptr ? nullptr : seen.key_counts + n;
  return math::keys_of(d.key_rules(), i, position, count);
}

// m[i, j] of one head: the dropout factor of a probability.
template <typename T>
struct Mask {
  const AttentionDims& d;
  int64_t head;  // index among all N * H heads
  uint64_t step;
  T operator()(int64_t i, int64_t j) const {
    if (d.dropout == 0) return T(1);
    const int64_t index = ((d.first_head + head) * d.Tq + i) * d.dropout_row() + j;
    const uint32_t drawn = math::philox_u32(d.seed, d.stream, step, static_cast<uint64_t>(index));
    const bool kept = math::dropout_keeps(drawn, math::dropout_threshold(d.dropout));
    return kept ? static_cast<T>(1 / (1 - d.dropout)) : T(0);
  }
};

/// The operands point to the head's first elements, except `seen`.
template <typename T>
void forward_head(const AttentionDims& d, const Mask<T>& mask, const AttentionOperands<T>& o) {
  const Rows<const T> q{o.q, d.q_row}, k{o.k, d.kv_row}, v{o.v, d.kv_row};
  const Rows<T> y{o.y, d.H * d.D};
  const T scale = static_cast<T>(d.scale);
  for (int64_t i = 0; i < d.Tq; ++i) {
    const math::KeyRange keys = keys_of(d, o.seen, mask.head / d.H, i);
    T max = -std::numeric_limits<T>::infinity();
    for (int64_t j = keys.begin; j < keys.end; ++j)
      max = std::max(max, scale * dot(d.D, q[i], k[j]));
    T sum = T(0);
    std::fill_n(y[i], d.D, T(0));
    for (int64_t j = keys.begin; j < keys.end; ++j) {
      const T p = std::exp(scale * dot(d.D, q[i], k[j]) - max);
      sum += p;
      const T kept = mask(i, j) * p;
      for (int64_t c = 0; c < d.D; ++c) y[i][c] += kept * v[j][c];
    }
    const bool sees_any = keys.end > keys.begin;
    for (int64_t c = 0; sees_any && c < d.D; ++c) y[i][c] /= sum;
    if (o.lse != nullptr) o.lse[i] = sees_any ? max + std::log(sum) : T(0);
  }
}

/// Sets dk or dv of a head of keys to 0.
template <typename T>
void clear_head(const AttentionDims& d, T* gradient) {
  if (gradient == nullptr) return;
  for (int64_t j = 0; j < d.Tk; ++j) std::fill_n(gradient + j * d.kv_row, d.D, T(0));
}

/// Adds to dk and dv.
template <typename T>
void backward_head(const AttentionDims& d, const Mask<T>& mask, const AttentionGradOperands<T>& o) {
  const Rows<const T> q{o.q, d.q_row}, k{o.k, d.kv_row}, v{o.v, d.kv_row};
  const Rows<const T> y{o.y, d.H * d.D}, dy{o.dy, d.H * d.D};
  const Rows<T> dq{o.dq, d.q_row}, dk{o.dk, d.kv_row}, dv{o.dv, d.kv_row};
  const T scale = static_cast<T>(d.scale);
  for (int64_t i = 0; i < d.Tq; ++i) {
    if (dq.base != nullptr) std::fill_n(dq[i], d.D, T(0));
    const T delta = dot(d.D, dy[i], y[i]);
    const math::KeyRange keys = keys_of(d, o.seen, mask.head / d.H, i);
    for (int64_t j = keys.begin; j < keys.end; ++j) {
      const T p = std::exp(scale * dot(d.D, q[i], k[j]) - o.lse[i]);
      const T m = mask(i, j);
      const T ds = scale * p * (m * dot(d.D, dy[i], v[j]) - delta);
      for (int64_t c = 0; c < d.D; ++c) {
        if (dv.base != nullptr) dv[j][c] += m * p * dy[i][c];
        if (dq.base != nullptr) dq[i][c] += ds * k[j][c];
        if (dk.base != nullptr) dk[j][c] += ds * q[i][c];
      }
    }
  }
}

}  // namespace

template <typename T>
void attention_forward(const AttentionDims& d, const AttentionOperands<T>& o, Run<T>) {
  check(d, o);
  const uint64_t drawn_at = o.step == nullptr ? 0 : static_cast<uint64_t>(*o.step);
  const int64_t y_row = d.H * d.D;
  for (int64_t n = 0; n < d.N; ++n) {
    for (int64_t h = 0; h < d.H; ++h) {
      const int64_t q_at = n * d.Tq * d.q_row + h * d.D,
                    kv_at = n * d.Tk * d.kv_row + h / d.group() * d.D;
      forward_head<T>(d, {d, n * d.H + h, drawn_at},
                      {.q = o.q + q_at,
                       .k = o.k + kv_at,
                       .v = o.v + kv_at,
                       .y = o.y + n * d.Tq * y_row + h * d.D,
                       .lse = o.lse == nullptr ? nullptr : o.lse + (n * d.H + h) * d.Tq,
                       .seen = o.seen});
    }
  }
}

template <typename T>
void attention_backward(const AttentionDims& d, const AttentionGradOperands<T>& o, Run<T>) {
  check(d, o);
  const uint64_t drawn_at = o.step == nullptr ? 0 : static_cast<uint64_t>(*o.step);
  const int64_t y_row = d.H * d.D;
  const auto at = [](T* base, int64_t offset) { return base == nullptr ? base : base + offset; };
  for (int64_t n = 0; n < d.N; ++n) {
    for (int64_t h = 0; h < d.H; ++h) {
      const int64_t q_at = n * d.Tq * d.q_row + h * d.D,
                    kv_at = n * d.Tk * d.kv_row + h / d.group() * d.D;
      const int64_t y_at = n * d.Tq * y_row + h * d.D;
      if (h % d.group() == 0) {
        clear_head(d, at(o.dk, kv_at));
        clear_head(d, at(o.dv, kv_at));
      }
      backward_head<T>(d, {d, n * d.H + h, drawn_at},
                       {.q = o.q + q_at,
                        .k = o.k + kv_at,
                        .v = o.v + kv_at,
                        .y = o.y + y_at,
                        .lse = o.lse + (n * d.H + h) * d.Tq,
                        .dy = o.dy + y_at,
                        .dq = at(o.dq, q_at),
                        .dk = at(o.dk, kv_at),
                        .dv = at(o.dv, kv_at),
                        .seen = o.seen});
    }
  }
}

#define TRAINYARD_INSTANTIATE(T)                                                                 \
  template void attention_forward<T>(const AttentionDims&, const AttentionOperands<T>&, Run<T>); \
  template void attention_backward<T>(const AttentionDims&, const AttentionGradOperands<T>&,     \
                                      Run<T>);
TRAINYARD_INSTANTIATE(float)
TRAINYARD_INSTANTIATE(double)
#undef TRAINYARD_INSTANTIATE

}  // namespace trainyard::kernels::reference
