// kernels/cpu/soft_target.h: the target distribution that label smoothing and class weights make
// from a row's label (kernels/softmax_xent.h), for losses of whole rows and of parts of rows.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/softmax_xent.h"

namespace trainyard::kernels::cpu {

/// Adds the rows' loss terms, which are stored first, in order on one thread, so that the result
/// does not depend on the team.
inline double add_up(int64_t count, const double* terms) {
  double total = 0;
  for (int64_t i = 0; i < count; ++i) total += terms[i];
  return total;
}

/// The target c of a row is off(k) for every class k, plus on(label) at the label.
class SoftTarget {
 public:
  explicit SoftTarget(const SoftmaxXentParams& p)
      : p_(p), share_(p.smoothing / static_cast<double>(p.classes)) {
    off_sum_ = p.smoothing;
    if (!p.weights.empty()) off_sum_ = share_ * add_up(p.classes, p.weights.data());
    if (!p.divergence) return;
    const double at_label = 1 - p.smoothing + share_;
    entropy_ = -at_label * std::log(at_label);
    if (share_ > 0) entropy_ -= static_cast<double>(p.classes - 1) * share_ * std::log(share_);
  }

  bool counts(int32_t label) const { return label_counts(label, p_.ignored); }
  bool smooth() const { return share_ > 0; }
  double weight(int32_t label) const {
    return p_.weights.empty() ? 1 : p_.weights[static_cast<size_t>(label)];
  }
  double on(int32_t label) const { return (1 - p_.smoothing) * weight(label); }
  double off(int64_t k) const {
    return p_.weights.empty() ? share_ : share_ * p_.weights[static_cast<size_t>(k)];
  }
  double sum(int32_t label) const { return on(label) + off_sum_; }
  double entropy() const { return entropy_; }

  // Returns W, the sum of the weights of the batch's rows that are not ignored.
  double total_weight(const int32_t* label) const {
    double total = 0;
    for (int64_t n = 0; n < p_.rows; ++n) total += counts(label[n]) ? weight(label[n]) : 0;
    return total;
  }

 private:
  const SoftmaxXentParams& p_;
  double share_, off_sum_, entropy_ = 0;
};

}  // namespace trainyard::kernels::cpu
