// src/inference/evaluate_model.h: measures a trained model on any dataset that fits it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "src/base/result.h"
#include "src/data/schema.h"
#include "src/runtime/backend.h"

namespace trainyard {

struct ModelEvaluation {
  std::string partition;                               // "train" or "test"
  int64_t rows = 0;                                    // for text: number of windows
  std::vector<std::pair<std::string, double>> values;  // by metric
  std::vector<std::vector<int64_t>> confusion;         // [label][prediction], classification only
  TargetSchema target;                                 // the model's target
  std::vector<std::string> ignored_columns;            // of the dataset: the model has none of them
};

/// A model that is loaded for evaluation. Not thread-safe.
class ModelEvaluator {
 public:
  /// Returns the errors of read_model(), and MODEL_FILE_INVALID.
  static Result<std::unique_ptr<ModelEvaluator>> open(const std::filesystem::path& model,
                                                      Backend& backend);
  virtual ~ModelEvaluator() = default;

  /// `partition` is "train", "test" or "". "" selects the test set if the dataset has one, else the
  /// training rows. `metrics` are computed in addition to the default ones of the target. The
  /// dataset's schema may differ from the model's (src/data/align.h). Errors: EVALUATE_MISMATCH,
  /// EVALUATE_ROWS_MISSING, and those of check_metrics() and Dataset::open().
  virtual Result<ModelEvaluation> evaluate(const std::filesystem::path& dataset,
                                           const std::string& partition,
                                           const std::vector<std::string>& metrics) = 0;
};

/// Opens `model`, evaluates it once and closes it.
Result<ModelEvaluation> evaluate_model(const std::filesystem::path& model,
                                       const std::filesystem::path& dataset,
                                       const std::string& partition,
                                       const std::vector<std::string>& metrics, Backend& backend);

}  // namespace trainyard
