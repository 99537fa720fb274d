// src/inference/predictor.h: predicts rows with a trained model from its folder.
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
  // Classification: one probability per class. Of more than kClassesListedMax classes only the
  // kTopClasses largest are listed, and `top` has their class indices.
  std::vector<float> probabilities;
  std::vector<int64_t> top;
  double value = 0;                   // regression, in the target's own units
  std::vector<float> reconstruction;  // of an autoencoder, from RowTransform::restore_input()
};

class Predictor {
 public:
  static Result<std::unique_ptr<Predictor>> open(const std::filesystem::path& model,
                                                 Backend& backend);
  virtual ~Predictor() = default;
  virtual const DatasetSchema& schema() const = 0;
  /// Predicts the rows of several callers in shared batches. Element i of the result is
  /// bit-identical to that of predicting rows[i] alone.
  virtual std::vector<std::vector<Prediction>> predict_together(std::span<const RawRows> rows) = 0;
  std::vector<Prediction> predict(const RawRows& rows);
};

/// Rows that a predictor computes per batch. A partial batch takes as long as a full one, so
/// callers with few rows gain by predict_together(). With very many classes batches are smaller, so
/// that the scores take at most 64 MiB.
inline constexpr int64_t kPredictBatch = 64;
inline int64_t predict_batch(const ModelInterface& interface) {
  if (!interface.classification()) return kPredictBatch;
  return std::clamp<int64_t>((int64_t{1} << 24) / interface.outputs, 1, kPredictBatch);
}

}  // namespace trainyard
