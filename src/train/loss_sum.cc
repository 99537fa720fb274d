#include "src/train/loss_sum.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/math/losses.h"

namespace trainyard {

LossSum::LossSum(const Objective& objective)
    : kind_(objective.loss->classes                     ? Kind::kSoftmax
            : objective.loss->op == "MeanAbsoluteError" ? Kind::kAbsolute
            : objective.loss->op == "HuberLoss"         ? Kind::kHuber
            : objective.loss->op == "MeanSquaredError"  ? Kind::kSquared
                                                        : Kind::kBinary),
      smoothing_(objective.attributes.get_float("label_smoothing", 0)),
      parameter_(objective.attributes.get_float(kind_ == Kind::kHuber ? "delta" : "pos_weight", 1)),
      weights_(objective.attributes.get_floats("class_weights", {})) {
  if (objective.loss->op != "KullbackLeiblerDivergence") return;
  const auto classes = static_cast<double>(objective.interface.outputs);
  const double share = smoothing_ / classes, at_label = 1 - smoothing_ + share;
  entropy_ = -at_label * std::log(at_label) - (classes - 1) * share * std::log(share);
}

// Uses the formula of kernels/softmax_xent.h.
void LossSum::add_scores(std::span<const float> scores, int64_t label, double cross_entropy) {
  const auto at = static_cast<size_t>(label);
  if (kind_ == Kind::kBinary) {
    return add_number(static_cast<double>(scores[1]) - static_cast<double>(scores[0]),
                      static_cast<double>(label));
  }
  const double weight = weights_.empty() ? 1 : weights_[at];
  weight_ += weight;
  total_ += (1 - smoothing_) * weight * cross_entropy - entropy_;
  if (smoothing_ == 0) return;
  const double log_sum = cross_entropy + static_cast<double>(scores[at]);
  double others = 0;
  for (size_t k = 0; k < scores.size(); ++k) {
    others += (weights_.empty() ? 1 : weights_[k]) * (log_sum - static_cast<double>(scores[k]));
  }
  total_ += smoothing_ / static_cast<double>(scores.size()) * others;
}

void LossSum::add_number(double y, double target) {
  weight_ += 1;
  switch (kind_) {
    case Kind::kSquared:
      total_ += math::MeanSquaredError{}.f(y, target);
      break;
    case Kind::kAbsolute:
      total_ += math::MeanAbsoluteError{}.f(y, target);
      break;
    case Kind::kHuber:
      total_ += math::HuberLoss{parameter_}.f(y, target);
      break;
    case Kind::kBinary:
      total_ += math::BinaryCrossEntropyLoss{parameter_}.f(y, target);
      break;
    case Kind::kSoftmax:
      TRAINYARD_CHECK(false, "a loss of classes is not a loss of numbers");
  }
}

double LossSum::value() const {
  return weight_ > 0 ? total_ / weight_ : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace trainyard
