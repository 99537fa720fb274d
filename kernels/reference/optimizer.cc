#include "kernels/optimizer.h"

#include <algorithm>
#include <utility>

namespace trainyard::kernels::reference {
namespace {

template <typename T>
void write_copy(int64_t count, const T* p, T* copy) {
  if (copy != nullptr) std::copy_n(p, count, copy);
}

}  // namespace

template <typename T>
void sgd(const SgdParams& s, const SgdOperands<T>& o, Run<T>) {
  check(s, o);
  if (math::is_skipped(*o.learning_rate)) return;
  const math::SgdConstants<T> constants{static_cast<T>(*o.learning_rate * s.rate_factor),
                                        static_cast<T>(s.momentum), static_cast<T>(s.weight_decay),
                                        s.nesterov};
  for (int64_t i = 0; i < s.count; ++i) {
    math::sgd(constants, o.g[i], o.p[i], o.v == nullptr ? nullptr : &o.v[i]);
  }
  write_copy(s.count, o.p, o.copy);
}

template <typename T>
void adam(const AdamParams& s, const AdamOperands<T>& o, Run<T>) {
  check(s, o);
  if (math::is_skipped(*o.learning_rate)) return;
  const auto constants = math::adam_constants<T>(*o.learning_rate * s.rate_factor, s.beta1, s.beta2,
                                                 s.epsilon, s.weight_decay, s.decoupled, *o.step);
  for (int64_t i = 0; i < s.count; ++i) math::adam(constants, o.g[i], o.p[i], o.m[i], o.v[i]);
  write_copy(s.count, o.p, o.copy);
}

template <typename T>
void rmsprop(const RmspropParams& s, const RmspropOperands<T>& o, Run<T>) {
  check(s, o);
  if (math::is_skipped(*o.learning_rate)) return;
  const math::RmspropConstants<T> constants{static_cast<T>(*o.learning_rate * s.rate_factor),
                                            static_cast<T>(s.alpha),
                                            static_cast<T>(1 - s.alpha),
                                            static_cast<T>(s.epsilon),
                                            static_cast<T>(s.momentum),
                                            static_cast<T>(s.weight_decay)};
  for (int64_t i = 0; i < s.count; ++i) {
    math::rmsprop(constants, o.g[i], o.p[i], o.square[i], o.a == nullptr ? nullptr : &o.a[i],
                  o.b == nullptr ? nullptr : &o.b[i]);
  }
  write_copy(s.count, o.p, o.copy);
}

template <typename T>
void lion(const LionParams& s, const LionOperands<T>& o, Run<T>) {
  check(s, o);
  if (math::is_skipped(*o.learning_rate)) return;
  const double rate = *o.learning_rate * s.rate_factor;
  const math::LionConstants<T> constants{
      static_cast<T>(rate),        static_cast<T>(s.beta1),
      static_cast<T>(1 - s.beta1), static_cast<T>(s.beta2),
      static_cast<T>(1 - s.beta2), static_cast<T>(1 - rate * s.weight_decay)};
  for (int64_t i = 0; i < s.count; ++i) math::lion(constants, o.g[i], o.p[i], o.m[i]);
  write_copy(s.count, o.p, o.copy);
}

namespace {

template <typename T>
double square_sum(int64_t count, const T* x) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return sum;
}

// Updates the running average `average` with a new mean of squares.
template <typename T>
void learn(T& average, double mean, double share) {
  average += static_cast<T>(share) * (static_cast<T>(mean) - average);
}

// Calls f(i, variance) for every element. In a matrix the estimate is the product of its row's and
// its column's average, divided by the mean of the row averages.
template <typename T, typename F>
void for_variances(const AdafactorParams& s, const T* row, const T* column, const F& f) {
  if (s.rows == 0) {
    for (int64_t i = 0; i < s.columns; ++i) f(i, column[i]);
    return;
  }
  for (int64_t k = 0; k < s.batch; ++k) {
    double mean = 0;
    for (int64_t r = 0; r < s.rows; ++r) mean += static_cast<double>(row[k * s.rows + r]);
    mean = std::max(mean / static_cast<double>(s.rows), s.epsilon);
    for (int64_t r = 0; r < s.rows; ++r) {
      for (int64_t c = 0; c < s.columns; ++c) {
        f((k * s.rows + r) * s.columns + c,
          row[k * s.rows + r] * column[k * s.columns + c] / static_cast<T>(mean));
      }
    }
  }
}

template <typename T>
void learn_variances(const AdafactorParams& s, const T* g, double share, T* row, T* column) {
  if (s.rows == 0) {
    for (int64_t c = 0; c < s.columns; ++c) learn(column[c], square_sum(1, g + c), share);
    return;
  }
  for (int64_t k = 0; k < s.batch; ++k) {
    const T* matrix = g + k * s.rows * s.columns;
    for (int64_t r = 0; r < s.rows; ++r) {
      const double sum = square_sum(s.columns, matrix + r * s.columns);
      learn(row[k * s.rows + r], sum / static_cast<double>(s.columns), share);
    }
    for (int64_t c = 0; c < s.columns; ++c) {
      double sum = 0;
      for (int64_t r = 0; r < s.rows; ++r) sum += square_sum(1, matrix + r * s.columns + c);
      learn(column[k * s.columns + c], sum / static_cast<double>(s.rows), share);
    }
  }
}

template <typename T>
struct Factor {
  const T* x;
  bool transposed;
};

// c = a b, where c is [M, N] and each element is a sum of K terms.
template <typename T>
void product(int64_t M, int64_t N, int64_t K, Factor<T> a, Factor<T> b, T* c) {
  for (int64_t i = 0; i < M; ++i) {
    for (int64_t j = 0; j < N; ++j) {
      T sum = 0;
      for (int64_t k = 0; k < K; ++k) {
        sum +=
            a.x[a.transposed ? k * M + i : i * K + k] * b.x[b.transposed ? j * K + k : k * N + j];
      }
      c[i * N + j] = sum;
    }
  }
}

}  // namespace

template <typename T>
void adafactor(const AdafactorParams& s, const AdafactorOperands<T>& o, Run<T>) {
  check(s, o);
  if (math::is_skipped(*o.learning_rate)) return;
  const int64_t count = s.count();
  const auto c =
      math::adafactor_constants(*o.learning_rate * s.rate_factor, s.beta2_decay, s.scale_min,
                                s.weight_decay, *o.step, square_sum(count, o.p), count);
  learn_variances(s, o.g, c.new_share, o.row, o.column);
  const auto floor = static_cast<T>(s.epsilon * s.epsilon);
  double updates = 0;
  for_variances<T>(s, o.row, o.column, [&](int64_t i, T variance) {
    const T u = math::adafactor_update(o.g[i], variance, floor);
    updates += static_cast<double>(u) * static_cast<double>(u);
  });
  const auto rate = static_cast<T>(math::adafactor_step(c.step, updates, count, s.clip_threshold));
  for_variances<T>(s, o.row, o.column, [&](int64_t i, T variance) {
    o.p[i] = o.p[i] * static_cast<T>(c.kept_share) -
             rate * math::adafactor_update(o.g[i], variance, floor);
  });
}

int64_t muon_workspace_elements(const MuonParams& s) {
  const int64_t side = std::min(s.rows, s.columns);
  return 2 * s.rows * s.columns + 2 * side * side;
}

template <typename T>
void muon(const MuonParams& s, const T* g, const float* learning_rate, T* p, T* m, T* workspace) {
  if (math::is_skipped(*learning_rate)) return;
  const int64_t count = s.rows * s.columns;
  const bool tall = s.rows > s.columns;  // then the small Gram matrix is X^T X
  const int64_t side = std::min(s.rows, s.columns), length = std::max(s.rows, s.columns);
  T* x = workspace;
  T* next = x + count;
  T* gram = next + count;
  T* square = gram + side * side;
  for (int64_t i = 0; i < count; ++i) {
    m[i] += static_cast<T>(1 - s.momentum) * (g[i] - m[i]);
    x[i] = s.nesterov ? g[i] + static_cast<T>(s.momentum) * (m[i] - g[i]) : m[i];
  }
  const double norm = std::sqrt(square_sum(count, x));
  const auto scale = static_cast<T>(1 / (norm < math::kMuonEpsilon ? math::kMuonEpsilon : norm));
  for (int64_t i = 0; i < count; ++i) x[i] *= scale;
  for (int64_t k = 0; k < s.iterations; ++k) {
    product<T>(side, side, length, {x, tall}, {x, !tall}, gram);
    product<T>(side, side, side, {gram, false}, {gram, false}, square);
    for (int64_t i = 0; i < side * side; ++i) {
      square[i] = static_cast<T>(math::kMuonB) * gram[i] + static_cast<T>(math::kMuonC) * square[i];
    }
    if (tall) {
      product<T>(s.rows, side, side, {x, false}, {square, false}, next);
    } else {
      product<T>(side, s.columns, side, {square, false}, {x, false}, next);
    }
    for (int64_t i = 0; i < count; ++i) next[i] += static_cast<T>(math::kMuonA) * x[i];
    std::swap(x, next);
  }
  const double rate = *learning_rate * s.rate_factor;
  const auto kept = static_cast<T>(1 - rate * s.weight_decay);
  const auto step = static_cast<T>(math::muon_rate(rate, s.match_adamw, s.rows, s.columns));
  for (int64_t i = 0; i < count; ++i) p[i] = p[i] * kept - step * x[i];
}

template <typename T>
void moving_average(const MovingAverageParams& s, const MovingAverageOperands<T>& o, Run<T>) {
  check(s, o);
  const auto share = static_cast<T>(1 - s.decay);
  for (int64_t i = 0; i < s.count; ++i) {
    o.average[i] = *o.step == 0 ? o.p[i] : math::moving_average(o.average[i], o.p[i], share);
  }
}

#define TRAINYARD_INSTANTIATE(T)                                                               \
  template void sgd<T>(const SgdParams&, const SgdOperands<T>&, Run<T>);                       \
  template void adam<T>(const AdamParams&, const AdamOperands<T>&, Run<T>);                    \
  template void rmsprop<T>(const RmspropParams&, const RmspropOperands<T>&, Run<T>);           \
  template void lion<T>(const LionParams&, const LionOperands<T>&, Run<T>);                    \
  template void adafactor<T>(const AdafactorParams&, const AdafactorOperands<T>&, Run<T>);     \
  template void muon<T>(const MuonParams&, const T*, const float*, T*, T*, T*);                \
  template void moving_average<T>(const MovingAverageParams&, const MovingAverageOperands<T>&, \
                                  Run<T>);
TRAINYARD_INSTANTIATE(float)
TRAINYARD_INSTANTIATE(double)
#undef TRAINYARD_INSTANTIATE

}  // namespace trainyard::kernels::reference
