// src/inference/evaluate_model.h: a trained model measured on a dataset that it need not have seen.
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
  int64_t rows = 0;                                    // of a text: windows
  std::vector<std::pair<std::string, double>> values;  // by metric
  std::vector<std::vector<int64_t>> confusion;         // [label][prediction], of classes
  TargetSchema target;                                 // of the model
};

/// A model, ready to be measured. Not thread-safe.
class ModelEvaluator {
 public:
  /// The refusals of read_model, and MODEL_FILE_INVALID.
  static Result<std::unique_ptr<ModelEvaluator>> open(const std::filesystem::path& model,
                                                      Backend& backend);
  virtual ~ModelEvaluator() = default;

  /// `partition` is "train", "test" or "" for the test set where there is one, else the training
  /// rows. `metrics` are computed beside the usual ones of the target. The dataset's schema may
  /// differ from the model's (src/data/align.h). Refusals: EVALUATE_MISMATCH; EVALUATE_NO_ROWS;
  /// what check_metrics says; those of Dataset::open.
  virtual Result<ModelEvaluation> evaluate(const std::filesystem::path& dataset,
                                           const std::string& partition,
                                           const std::vector<std::string>& metrics) = 0;
};

/// Once, of a model that is opened for it.
Result<ModelEvaluation> evaluate_model(const std::filesystem::path& model,
                                       const std::filesystem::path& dataset,
                                       const std::string& partition,
                                       const std::vector<std::string>& metrics, Backend& backend);

}  // namespace trainyard
