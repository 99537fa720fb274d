// src/train/baseline.h: what a model's metrics are worth: those of an answer that does not look at
// the inputs, on the same rows.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/data/preprocessing.h"
#include "src/models/loss.h"
#include "src/train/evaluate.h"

namespace trainyard {

/// Of classes: each with its share of the training rows, so that the largest is predicted. Of
/// numbers: the training rows' mean.
class Baseline {
 public:
  /// Nothing for targets that have no such answer: the next token, the input itself.
  static std::optional<Baseline> of(const Objective& objective, const Partition& train,
                                    std::span<const int64_t> rows);

  /// The metrics of `names` but for confusion_matrix, by the same formulas as a model's.
  /// `progressed`, if given, is called now and then.
  Evaluation evaluate(const Partition& partition, std::span<const int64_t> rows,
                      const Preprocessing& preprocessing, const std::vector<std::string>& names,
                      const std::function<void()>& progressed = nullptr) const;

  /// A sentence if the model is no better: for classes neither its loss nor its accuracy, for
  /// numbers neither its loss nor its rmse. `prefix`: "val".
  std::optional<std::string> compare(const std::string& prefix, const Evaluation& model,
                                     const Evaluation& baseline, const TargetSchema& target) const;

 private:
  explicit Baseline(const Objective& objective) : objective_(objective) {}

  Objective objective_;
  std::vector<float> output_;  // as the model's, of any row
  size_t largest_ = 0;         // class
};

/// A sentence if training ended far above where it began: ten times the first step's loss.
/// `losses`: of the last steps.
std::optional<std::string> check_divergence(double first_loss, const std::vector<double>& losses,
                                            double learning_rate);

}  // namespace trainyard
