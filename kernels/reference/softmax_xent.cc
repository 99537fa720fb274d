#include "kernels/softmax_xent.h"

#include <algorithm>
#include <cmath>

namespace trainyard::kernels::reference {
namespace {

double weight_of(const SoftmaxXentParams& p, int64_t k) {
  return p.weights.empty() ? 1 : p.weights[static_cast<size_t>(k)];
}

// c[n,k] of a row that counts.
double target_of(const SoftmaxXentParams& p, int32_t label, int64_t k) {
  const double smoothed = p.smoothing / static_cast<double>(p.classes) * weight_of(p, k);
  return k == label ? (1 - p.smoothing) * weight_of(p, k) + smoothed : smoothed;
}

// W
double total_weight(const SoftmaxXentParams& p, const int32_t* label) {
  double total = 0;
  for (int64_t n = 0; n < p.rows; ++n) {
    if (label[n] != p.ignored) total += weight_of(p, label[n]);
  }
  return total;
}

}  // namespace

template <typename T>
void softmax_xent_forward(const SoftmaxXentParams& p, const T* z, const int32_t* label, T* loss,
                          T* prob) {
  double total = 0;
  for (int64_t n = 0; n < p.rows; ++n) {
    const T* z_row = z + n * p.classes;
    T* p_row = prob + n * p.classes;
    const T max = *std::max_element(z_row, z_row + p.classes);
    T sum = T(0);
    for (int64_t k = 0; k < p.classes; ++k) sum += std::exp(z_row[k] - max);
    for (int64_t k = 0; k < p.classes; ++k) {  // p may be z
      const double log_p = static_cast<double>(z_row[k] - max - std::log(sum));
      p_row[k] = std::exp(z_row[k] - max) / sum;
      const double c = label[n] == p.ignored ? 0 : target_of(p, label[n], k);
      if (c == 0) continue;  // also where log p is infinite
      total -= c * (p.divergence ? log_p - std::log(c) : log_p);
    }
  }
  const double weight = total_weight(p, label);
  *loss = static_cast<T>(weight == 0 ? 0 : total / weight);
}

template <typename T>
void softmax_xent_backward(const SoftmaxXentParams& p, const T* prob, const int32_t* label,
                           const T* dloss, T* dz) {
  const double weight = total_weight(p, label);
  for (int64_t n = 0; n < p.rows; ++n) {
    const bool counts = label[n] != p.ignored && weight > 0;
    double sum = 0;
    for (int64_t k = 0; k < p.classes; ++k) sum += target_of(p, label[n], k);
    for (int64_t k = 0; k < p.classes; ++k) {
      const int64_t i = n * p.classes + k;
      const double d = sum * static_cast<double>(prob[i]) - target_of(p, label[n], k);
      dz[i] = counts ? *dloss * static_cast<T>(d / weight) : T(0);
    }
  }
}

#define TRAINYARD_INSTANTIATE(T)                                                                \
  template void softmax_xent_forward<T>(const SoftmaxXentParams&, const T*, const int32_t*, T*, \
                                        T*);                                                    \
  template void softmax_xent_backward<T>(const SoftmaxXentParams&, const T*, const int32_t*,    \
                                         const T*, T*);
TRAINYARD_INSTANTIATE(float)
TRAINYARD_INSTANTIATE(double)

}  // namespace trainyard::kernels::reference
