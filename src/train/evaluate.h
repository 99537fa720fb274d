// src/train/evaluate.h: metrics over a set of rows, exact for any number of rows.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "src/data/preprocessing.h"
#include "src/train/session.h"

namespace trainyard {

/// Means over rows, or over all tokens of a stream's windows. Sums run in double, in the order of
/// the rows, so equal weights give equal bits.
struct Evaluation {
  int64_t rows = 0;
  double loss = 0;      // cross-entropy in nats, or squared error of the standardised target
  double accuracy = 0;  // classes and next tokens
  double mae = 0;       // regression: mean absolute error in the target's own units
};

/// Cross-entropy of one row, by log-sum-exp.
double cross_entropy(std::span<const float> logits, int64_t label);
/// Index of the largest value, the first of equal ones.
int64_t argmax(std::span<const float> values);

/// Runs `rows` of the partition through the evaluation program in batches of its fixed size. The
/// last batch is filled up with copies of its last row, which are not counted.
Evaluation evaluate_rows(Session& session, const DatasetSchema& schema,
                         const Preprocessing& preprocessing, const Partition& partition,
                         std::span<const int64_t> rows);

/// "<prefix>/loss", and "<prefix>/accuracy" where there are scores, or "<prefix>/mae".
std::vector<MetricPoint> to_metrics(const Evaluation& e, const std::string& prefix, bool scores,
                                    int64_t step);

}  // namespace trainyard
