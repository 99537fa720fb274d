// src/train/metric_accumulator.h: computes the metrics of an evaluation from the model's output of
// each row.
//
// Formulas are those of scikit-learn if it has them:
//   precision, recall, F1   macro: the mean over the classes that occur as a label or a prediction,
//                           a class without one counting 0; micro: over all rows, which is accuracy
//   roc_auc                 two classes: by rank, ties counting half. More: the mean over classes,
//                           each against all others, by its probability; classes without a row, or
//                           without any other, are left out
//   r2                      1 - squared errors / squared deviations of the targets; 1 or 0 where
//                           the targets do not differ
// loss is the job's loss with its options, in the units in which the model trains; mae and rmse are
// in the target's own units, or for an autoencoder in those of the model's input. perplexity is e^c
// and bits_per_byte is c / ln 2 per byte of text, where c is the cross-entropy, whatever the loss.
// Rows with the label that the loss ignores count nowhere; a metric without a row is NaN.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "src/models/loss.h"
#include "src/train/loss_sum.h"

namespace trainyard {

/// Returns the cross-entropy of one row, by log-sum-exp.
double cross_entropy(std::span<const float> logits, int64_t label);
/// Returns the index of the largest value; the first one if there are several.
int64_t argmax(std::span<const float> values);
/// One score per class from the model's output. A single logit z for two classes becomes the scores
/// 0 and z, whose softmax is 1 - sigmoid(z) and sigmoid(z).
class ClassScores {
 public:
  explicit ClassScores(std::span<const float> output)
      : pair_{0, output[0]}, scores_(output.size() > 1 ? output : std::span<const float>(pair_)) {}
  ClassScores(const ClassScores&) = delete;
  ClassScores& operator=(const ClassScores&) = delete;
  std::span<const float> get() const { return scores_; }

 private:
  std::array<float, 2> pair_;
  std::span<const float> scores_;
};

/// Not thread-safe. Sums are in double, in the order of the rows, so equal outputs give equal bits.
class MetricAccumulator {
 public:
  /// Stores only what the metrics `names` (src/job/metrics.h) need: roc_auc needs the scores of
  /// every row.
  MetricAccumulator(const std::vector<std::string>& names, const Objective& objective);

  /// Adds one row with a class label, or one token; `bytes` is the length of its text.
  void add_scores(std::span<const float> output, int64_t label, int64_t bytes = 1);
  /// Adds one number: `output` and `output_target` in the units of the loss, `predicted` and
  /// `target` in the target's own units.
  void add_number(double output, double output_target, double predicted, double target);

  /// Returns the value of one of the metrics, except "confusion_matrix".
  double value(const std::string& name) const;
  /// Returns the number of rows as [label][prediction]; empty unless requested.
  const std::vector<std::vector<int64_t>>& confusion() const { return confusion_; }

 private:
  double per_class(const std::string& name) const;
  double roc_auc() const;
  double r2() const;

  std::vector<std::string> names_;
  LossSum loss_;
  int64_t ignored_;
  size_t classes_;  // 0: the target is not a class
  bool keeps_scores_ = false, keeps_confusion_ = false;
  int64_t rows_ = 0, bytes_ = 0;
  double cross_entropy_ = 0;
  int64_t correct_ = 0;
  std::map<std::string, int64_t> top_k_correct_;
  std::map<std::string, int64_t> top_k_;
  std::vector<int64_t> labelled_, predicted_, hits_;  // by class
  std::vector<std::vector<int64_t>> confusion_;
  std::vector<double> scores_;  // [rows, K] probabilities; for two classes only the margin
  std::vector<int32_t> labels_;
  double absolute_ = 0, squared_ = 0;
  double target_mean_ = 0, target_deviation_ = 0;  // running mean and sum of squares (Welford 1962)
};

}  // namespace trainyard
