// src/train/baseline.h: puts a model's metrics into perspective: the metrics of a constant
// prediction, which ignores the inputs, on the same rows.
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

/// The constant prediction. For classes the scores are the classes' shares of the training rows, so
/// that the largest class is predicted; for numbers it is the mean of the training rows.
class Baseline {
 public:
  /// Returns nothing for targets without a constant prediction: the next token, the input itself.
  static std::optional<Baseline> of(const Objective& objective, const Partition& train,
                                    std::span<const int64_t> rows);

  /// Computes the metrics of `names` except confusion_matrix, with the formulas used for a model.
  /// `progressed`, if given, is called regularly.
  Evaluation evaluate(const Partition& partition, std::span<const int64_t> rows,
                      const Preprocessing& preprocessing, const std::vector<std::string>& names,
                      const std::function<void()>& progressed = nullptr) const;

  /// Returns a warning if the model is no better than the baseline: neither its loss nor its
  /// accuracy (classes) or rmse (numbers) is better. `prefix` of the metrics' keys is e.g. "val".
  std::optional<std::string> compare(const std::string& prefix, const Evaluation& model,
                                     const Evaluation& baseline, const TargetSchema& target) const;

  /// Returns a warning if the model is nearly perfect where the baseline is not: few real targets
  /// follow from the inputs, so most often a column or a copy of a row reveals them.
  std::optional<std::string> check_perfection(const std::string& prefix, const Evaluation& model,
                                              const Evaluation& baseline) const;

 private:
  explicit Baseline(const Objective& objective) : objective_(objective) {}

  Objective objective_;
  std::vector<float> output_;  // the model output that is assumed for each row
  size_t largest_ = 0;         // the most frequent class
};

/// Returns a warning if so few rows were held out that single ones decide the metrics.
std::optional<std::string> check_row_count(const std::string& prefix, int64_t rows);

/// Returns a warning if training ended far above its start: at more than ten times the first step's
/// loss. `losses` are those of the last steps.
std::optional<std::string> check_divergence(double first_loss, const std::vector<double>& losses,
                                            double learning_rate);

}  // namespace trainyard
