// src/artifact/model_artifact.h: the folder of a trained model, written atomically.
//
//   model.safetensors   parameters and state, by name; F32, and in an imported model also numbers
//                       of 16 bits
//   model.json          {format_version, producer, model, schema, preprocessing, metrics, steps,
//                        parameter_count, precision}; if the job requested them, also
//                        confusion_matrix ({"test": [[label][prediction]]}) and
//                        best ({metric, value, step})
//   adapter_model.safetensors, adapter_config.json
//                        only of a job with recipe.lora: its adapters in PEFT's format; they are
//                        already merged into model.safetensors
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "src/artifact/lora_model.h"
#include "src/base/files.h"
#include "src/base/result.h"
#include "src/checkpoint/safetensors.h"
#include "src/data/preprocessing.h"
#include "src/job/reporter.h"
#include "src/models/loss.h"

namespace trainyard {

struct ModelInfo {
  ModelSpec model;
  DatasetSchema schema;
  Preprocessing preprocessing;
  std::vector<MetricPoint> metrics;
  int64_t steps = 0;
  int64_t parameter_count = 0;
  // The precision that the model computes in, whatever the type of its stored weights.
  Precision precision = Precision::kFp32;
  ConfusionMatrices confusion = {};
  // The evaluation whose weights were kept; `best_metric` is empty if the last weights were kept.
  std::string best_metric = {};
  double best_value = 0;
  int64_t best_step = 0;

  /// Returns the model's interface to its data: input shape, target form and number of outputs.
  /// Returns the interface for use, where a row is a single document.
  ModelInterface interface() const {
    ModelInterface used = schema.interface(preprocessing.context_length);
    used.documents = false;
    return used;
  }
};

/// Writes `folder` atomically, through a temporary sibling folder. Replaces an
/// existing `folder`, which an attempt leaves behind if it dies between this call and its report.
Status write_model(Files& files, const std::filesystem::path& folder, const ModelInfo& info,
                   std::span<const TensorView> weights, const LoraModel* adapter = nullptr);

inline constexpr const char* kModelWeightsFile = "model.safetensors";

/// Returns the text of model.json.
std::string model_info_text(const ModelInfo& info);
/// Writes model.json into a folder.
Status write_model_info(Files& files, const std::filesystem::path& folder, const ModelInfo& info);
/// Reads a file with the text of a model.json. Errors as of read_model().
Result<ModelInfo> read_model_info(const std::filesystem::path& file);

/// Renames `temporary`, whose files are already durable, to `folder`, replacing an existing one.
Status install_model(Files& files, const std::filesystem::path& temporary,
                     const std::filesystem::path& folder);

struct LoadedModel {
  ModelInfo info;
  Objective objective;
  SafetensorsFile weights;
};
/// Errors: NOT_FOUND/FILE_NOT_FOUND, or MODEL_FILE_INVALID with the cause in its message. Checks
/// that the preprocessing fits the schema and the model's input; find_weight() checks that the
/// weights fit the model.
Result<LoadedModel> read_model(const std::filesystem::path& folder);

/// Returns the weight of a parameter or state tensor. MODEL_FILE_INVALID if it is missing or has
/// another type. Its numbers may be stored in 16 bits (typed_bytes()).
Result<const TensorView*> find_weight(const SafetensorsFile& weights, const TensorInfo& tensor);

}  // namespace trainyard
