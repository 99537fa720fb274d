// src/train/loss_sum.h: the loss of a set of rows, as the training program's loss is of a batch,
// from what the model gave for each of them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/models/loss.h"

namespace trainyard {

/// Not thread-safe. Sums run in double, in the order of the rows.
class LossSum {
 public:
  explicit LossSum(const Objective& objective);

  /// A row that counts: one score per class (of two classes with one logit z: 0 and z).
  /// `cross_entropy` is that of the row, only by its label.
  void add_scores(std::span<const float> scores, int64_t label, double cross_entropy);
  /// One number of the output and its target, in the units in which the model trains.
  void add_number(double y, double target);
  /// NaN before anything counted.
  double value() const;

 private:
  enum class Kind : uint8_t { kSoftmax, kSquared, kAbsolute, kHuber, kBinary } kind_;
  double smoothing_, parameter_, entropy_ = 0;
  std::vector<double> weights_;
  double total_ = 0, weight_ = 0;
};

}  // namespace trainyard
