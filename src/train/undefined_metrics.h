// src/train/undefined_metrics.h: finds metrics that the labels of the evaluated rows leave without
// a value, whatever the model predicts.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "src/data/dataset.h"
#include "src/models/loss.h"
#include "src/train/evaluate.h"

namespace trainyard {

struct UndefinedMetric {
  std::string name;  // without the prefix: "roc_auc"
  std::string why;   // "all 10 rows are of class 'a', but it compares classes"
  bool is_reported;  // as a number that is not NaN
};

/// Returns the metrics of `e`, an evaluation of `rows`, that are not defined for their labels.
std::vector<UndefinedMetric> find_undefined_metrics(const Evaluation& e,
                                                    const DatasetSchema& schema,
                                                    const Partition& partition,
                                                    std::span<const int64_t> rows,
                                                    const Objective& objective);

}  // namespace trainyard
