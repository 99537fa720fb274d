// src/train/predictor.h: a trained model folder in use.
//
//   model.safetensors   parameters and state, by name
//   model.json          model spec, dataset schema, preprocessing, final metrics, format version
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.h"
#include "src/data/preprocessing.h"
#include "src/runtime/backend.h"

namespace trainyard {

struct Prediction {
  int64_t label = -1;                 // classification: index into schema().target.classes
  std::vector<float> probabilities;   // classification: one per class
  double value = 0;                   // regression, in the target's own units
  std::vector<float> reconstruction;  // of a model of its input: RowTransform::restore_input
};

class Predictor {
 public:
  static Result<std::unique_ptr<Predictor>> open(const std::filesystem::path& model,
                                                 Backend& backend);
  virtual ~Predictor() = default;
  virtual const DatasetSchema& schema() const = 0;
  /// The rows of several callers, computed as if they were one table: element i is, to the bit,
  /// what rows[i] alone gives.
  virtual std::vector<std::vector<Prediction>> predict_together(std::span<const RawRows> rows) = 0;
  std::vector<Prediction> predict(const RawRows& rows);
};

/// Rows that a predictor computes at a time. Fewer cost the same, so callers with fewer gain by
/// predict_together().
inline constexpr int64_t kPredictBatch = 64;

}  // namespace trainyard
