#include "kernels/softmax_xent.h"

#include <algorithm>
#include <cmath>

namespace trainyard::kernels::reference {
namespace {

double weight_of(const SoftmaxXentParams& p, int64_t k) {
  return p.weights.empty() ? 1 : p.weights[static_cast<size_t>(k)];
}

// Labels and Shares give access to the targets: whether a row counts, and its distribution t.
struct Labels {
  const SoftmaxXentParams& p;
  const int32_t* label;
  bool counts(int64_t n) const { return label_counts(label[n], p.ignored); }
  double at(int64_t n, int64_t k) const { return k == label[n] ? 1 : 0; }
};
template <typename T>
struct Shares {
  const SoftmaxXentParams& p;
  const T* share;
  bool counts(int64_t) const { return true; }
  double at(int64_t n, int64_t k) const { return static_cast<double>(share[n * p.classes + k]); }
};
Labels targets_of(const SoftmaxXentParams& p, const int32_t* label) { return {p, label}; }
template <typename T>
Shares<T> targets_of(const SoftmaxXentParams& p, const T* share) {
  return {p, share};
}

// Returns c[n,k] of a row that is not ignored.
double target_of(const SoftmaxXentParams& p, const auto& t, int64_t n, int64_t k) {
  return weight_of(p, k) *
         ((1 - p.smoothing) * t.at(n, k) + p.smoothing / static_cast<double>(p.classes));
}

// Returns W, the sum of the weights of all rows that are not ignored.
double total_weight(const SoftmaxXentParams& p, const auto& t) {
  double total = 0;
  for (int64_t n = 0; n < p.rows; ++n) {
    for (int64_t k = 0; t.counts(n) && k < p.classes; ++k) total += weight_of(p, k) * t.at(n, k);
  }
  return total;
}

}  // namespace

template <typename T, typename Target>
void softmax_xent_forward(const SoftmaxXentParams& p, const SoftmaxXentOperands<T, Target>& o,
                          Run<T>) {
  check(p, o);
  const auto t = targets_of(p, o.target);
  double total = 0;
  for (int64_t n = 0; n < p.rows; ++n) {
    const T* z_row = o.z + n * p.classes;
    T* p_row = o.prob + n * p.classes;
    const T max = *std::max_element(z_row, z_row + p.classes);
    T sum = T(0);
    for (int64_t k = 0; k < p.classes; ++k) sum += std::exp(z_row[k] - max);
    for (int64_t k = 0; k < p.classes; ++k) {  // prob may alias z
      const double log_p = static_cast<double>(z_row[k] - max - std::log(sum));
      p_row[k] = std::exp(z_row[k] - max) / sum;
      const double c = t.counts(n) ? target_of(p, t, n, k) : 0;
      if (c == 0) continue;  // also avoids 0 * infinity where log p is infinite
      total -= c * (p.divergence ? log_p - std::log(c) : log_p);
    }
  }
  const double weight = total_weight(p, t);
  *o.loss = static_cast<T>(weight == 0 ? 0 : total / weight);
}

template <typename T, typename Target>
void softmax_xent_backward(const SoftmaxXentParams& p, const SoftmaxXentGradOperands<T, Target>& o,
                           Run<T>) {
  check(p, o);
  const auto t = targets_of(p, o.target);
  const double weight = total_weight(p, t);
  for (int64_t n = 0; n < p.rows; ++n) {
    const bool counts = t.counts(n) && weight > 0;
    double sum = 0;
    for (int64_t k = 0; k < p.classes; ++k) sum += target_of(p, t, n, k);
    for (int64_t k = 0; k < p.classes; ++k) {
      const int64_t i = n * p.classes + k;
      const double d = sum * static_cast<double>(o.prob[i]) - target_of(p, t, n, k);
      o.dz[i] = counts ? *o.dloss * static_cast<T>(d / weight) : T(0);
    }
  }
}

#define TRAINYARD_INSTANTIATE(T, Target)                                                        \
  template void softmax_xent_forward<T, Target>(const SoftmaxXentParams&,                       \
                                                const SoftmaxXentOperands<T, Target>&, Run<T>); \
  template void softmax_xent_backward<T, Target>(                                               \
      const SoftmaxXentParams&, const SoftmaxXentGradOperands<T, Target>&, Run<T>);
TRAINYARD_INSTANTIATE(float, int32_t)
TRAINYARD_INSTANTIATE(float, float)
TRAINYARD_INSTANTIATE(double, int32_t)
TRAINYARD_INSTANTIATE(double, double)
#undef TRAINYARD_INSTANTIATE

}  // namespace trainyard::kernels::reference
