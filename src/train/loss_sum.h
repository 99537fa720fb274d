// src/train/loss_sum.h: computes the loss of a set of rows from the model's outputs, with the
// formula by which the training program computes that of a batch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/models/loss.h"

namespace trainyard {

/// Not thread-safe. Sums are in double, in the order of the rows.
class LossSum {
 public:
  explicit LossSum(const Objective& objective);

  /// Adds a row whose label is not ignored: one score per class (for two classes with one logit z:
  /// 0 and z). `cross_entropy` is that of the row, without class weights and label smoothing.
  void add_scores(std::span<const float> scores, int64_t label, double cross_entropy);
  /// Adds one number of the output and its target, in the units in which the model trains.
  void add_number(double y, double target);
  /// Returns the mean loss; NaN if no row was added.
  double value() const;

 private:
  enum class Kind : uint8_t { kSoftmax, kSquared, kAbsolute, kHuber, kBinary } kind_;
  double smoothing_, parameter_, entropy_ = 0;
  std::vector<double> weights_;
  double total_ = 0, weight_ = 0;
};

}  // namespace trainyard
