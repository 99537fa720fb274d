// src/train/predictor.h: a trained model folder in use.
//
//   model.safetensors   parameters and state, by name
//   model.json          model spec, dataset schema, preprocessing, final metrics, format version
#pragma once

#include <filesystem>
#include <memory>
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
  virtual Result<std::vector<Prediction>> predict(const RawRows& rows) = 0;
};

}  // namespace trainyard
