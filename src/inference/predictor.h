// src/inference/predictor.h: a trained model folder in use.
//
//   model.safetensors   parameters and state, by name
//   model.json          model spec, dataset schema, preprocessing, final metrics, format version
#pragma once

#include <algorithm>
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
  int64_t label = -1;  // classification: index into schema().target.classes
  // Classification: one per class; of more than kClassesListedMax, the largest kTopClasses, whose
  // classes `top` has.
  std::vector<float> probabilities;
  std::vector<int64_t> top;
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
/// predict_together(). Scores of very many classes are computed for fewer rows: at most 64 MiB.
inline constexpr int64_t kPredictBatch = 64;
inline int64_t predict_batch(const ModelInterface& interface) {
  if (!interface.classification()) return kPredictBatch;
  return std::clamp<int64_t>((int64_t{1} << 24) / interface.outputs, 1, kPredictBatch);
}

}  // namespace trainyard
