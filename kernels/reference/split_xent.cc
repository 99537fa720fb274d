#include "kernels/split_xent.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace trainyard::kernels::reference {
namespace {

double weight_of(const SplitXentParams& p, int64_t k) {
  return p.loss.weights.empty() ? 1 : p.loss.weights[static_cast<size_t>(k)];
}
/// Returns c[n,k] of a row with this label; k is the class's index over all parts.
double target_of(const SplitXentParams& p, int32_t label, int64_t k) {
  const double on = k == label ? 1 - p.loss.smoothing : 0;
  return weight_of(p, k) * (on + p.loss.smoothing / static_cast<double>(p.loss.classes));
}
double total_weight(const SplitXentParams& p, const int32_t* label) {
  double total = 0;
  for (int64_t n = 0; n < p.loss.rows; ++n) {
    if (label_counts(label[n], p.loss.ignored)) total += weight_of(p, label[n]);
  }
  return total;
}
double weight_of_part(const SplitXentParams& p, int64_t part) {
  double sum = 0;
  const int64_t end = class_part_first(p.loss.classes, p.width, part + 1);
  for (int64_t k = class_part_first(p.loss.classes, p.width, part); k < end; ++k) {
    sum += weight_of(p, k);
  }
  return sum;
}

}  // namespace

template <typename T>
void class_softmax(const SplitXentParams& p, const ClassSoftmaxOperands<T>& o, Run<T>) {
  check(p, o);
  for (int64_t n = 0; n < p.loss.rows; ++n) {
    const T* z = o.z + n * p.width;
    T* q = o.q + n * p.width;
    T* s = o.statistics + n * kClassStatistics;
    T max = -std::numeric_limits<T>::infinity();
    for (int64_t k = 0; k < p.count; ++k) max = z[k] > max || z[k] != z[k] ? z[k] : max;
    const bool is_empty = max == -std::numeric_limits<T>::infinity();
    const int64_t at = o.label[n] - p.first;
    const T label = at >= 0 && at < p.count ? z[at] : T(0);
    T sum = T(0);
    double smooth = 0;
    for (int64_t k = 0; k < p.count && !is_empty; ++k) {
      sum += std::exp(z[k] - max);
      smooth += weight_of(p, p.first + k) * static_cast<double>(z[k] - max);
    }
    for (int64_t k = 0; k < p.width; ++k) {  // q may alias z
      q[k] = k < p.count && !is_empty ? std::exp(z[k] - max) / sum : T(0);
    }
    s[0] = is_empty ? kNoScore<T> : max;
    s[1] = sum;
    s[2] = label;
    s[3] = p.loss.smoothing > 0 ? static_cast<T>(smooth) : T(0);
  }
}

template <typename T>
void split_xent_forward(const SplitXentParams& p, const SplitXentOperands<T>& o, Run<T>) {
  check(p, o);
  const auto exp = [](T x) { return std::exp(x); };
  std::vector<double> weights;
  for (int64_t q = 0; q < p.parts; ++q) weights.push_back(weight_of_part(p, q));
  double total = 0;
  for (int64_t n = 0; n < p.loss.rows; ++n) {
    const int64_t step = p.loss.rows * kClassStatistics;
    const T* s = o.statistics + n * kClassStatistics;
    const RowOfParts<T> row =
        row_of_parts(s, step, p.parts, p.loss.smoothing > 0, exp,
                     [&](int64_t q) { return static_cast<T>(weights[static_cast<size_t>(q)]); });
    const T factor = factor_of_part(s + p.part * step, row, exp);
    for (int64_t k = 0; k < p.width; ++k) {
      o.prob[n * p.width + k] = k < p.count ? o.q[n * p.width + k] * factor : T(0);
    }
    const int32_t label = o.label[n];
    if (!label_counts(label, p.loss.ignored)) continue;
    const double log_sum = static_cast<double>(std::log(row.sum));
    const double on = (1 - p.loss.smoothing) * weight_of(p, label);
    if (on != 0) total -= on * (static_cast<double>(row.label - row.max) - log_sum);
    if (p.loss.smoothing == 0) continue;
    double all = 0;
    for (const double w : weights) all += w;
    const double share = p.loss.smoothing / static_cast<double>(p.loss.classes);
    total -= share * (static_cast<double>(row.smooth) - all * log_sum);
  }
  const double weight = total_weight(p, o.label);
  *o.loss = static_cast<T>(weight == 0 ? 0 : total / weight);
}

template <typename T>
void split_xent_backward(const SplitXentParams& p, const SplitXentGradOperands<T>& o, Run<T>) {
  check(p, o);
  const double weight = total_weight(p, o.label);
  double all = 0;
  for (int64_t k = 0; k < p.loss.classes; ++k) all += weight_of(p, k);
  for (int64_t n = 0; n < p.loss.rows; ++n) {
    const int32_t label = o.label[n];
    const bool counts = label_counts(label, p.loss.ignored) && weight > 0;
    const double of_label = counts ? weight_of(p, label) : 0;  // `ignored` may be no class
    const double sum = (1 - p.loss.smoothing) * of_label +
                       p.loss.smoothing / static_cast<double>(p.loss.classes) * all;
    for (int64_t k = 0; k < p.width; ++k) {
      const int64_t i = n * p.width + k;
      if (k >= p.count || !counts) {
        o.dz[i] = T(0);
        continue;
      }
      const double d = sum * static_cast<double>(o.prob[i]) - target_of(p, label, p.first + k);
      o.dz[i] = *o.dloss * static_cast<T>(d / weight);
    }
  }
}

#define TRAINYARD_INSTANTIATE(T)                                                                  \
  template void class_softmax<T>(const SplitXentParams&, const ClassSoftmaxOperands<T>&, Run<T>); \
  template void split_xent_forward<T>(const SplitXentParams&, const SplitXentOperands<T>&,        \
                                      Run<T>);                                                    \
  template void split_xent_backward<T>(const SplitXentParams&, const SplitXentGradOperands<T>&,   \
                                       Run<T>);
TRAINYARD_INSTANTIATE(float)
TRAINYARD_INSTANTIATE(double)
#undef TRAINYARD_INSTANTIATE

}  // namespace trainyard::kernels::reference
