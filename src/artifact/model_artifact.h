// src/artifact/model_artifact.h: the folder of a trained model, written whole or not at all.
//
//   model.safetensors   parameters and state, by name
//   model.json          {format_version, producer, model, schema, preprocessing, metrics, steps,
//                        parameter_count, precision}; where the job asked for them confusion_matrix
//                        ({"test":
//                        [[label][prediction]]}) and best ({metric, value, step})
//   adapter_model.safetensors, adapter_config.json
//                        of a job with recipe.lora: what it added, as PEFT keeps it; the weights
//                        have it in them already
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
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
  Precision precision = Precision::kFp32;  // that the model computes in; its weights are F32
  ConfusionMatrices confusion = {};
  // The evaluation that chose the model; no metric where it is the last one.
  std::string best_metric = {};
  double best_value = 0;
  int64_t best_step = 0;

  /// What the model's data offers.
  ModelInterface interface() const { return schema.interface(preprocessing.context_length); }
};

/// Writes `folder` by way of a temporary sibling. A folder that is already there (an attempt that
/// died between this and its report) is replaced.
Status write_model(Files& files, const std::filesystem::path& folder, const ModelInfo& info,
                   std::span<const TensorView> weights, const LoraModel* adapter = nullptr);

/// Makes `temporary`, whose files are durable, the model's folder in place of one that is there.
Status install_model(Files& files, const std::filesystem::path& temporary,
                     const std::filesystem::path& folder);

struct LoadedModel {
  ModelInfo info;
  Objective objective;
  SafetensorsFile weights;
};
/// NOT_FOUND/FILE_NOT_FOUND, or MODEL_FILE_INVALID saying what is wrong. Checks that the
/// preprocessing fits the schema and the model's input; find_weight checks that the weights fit the
/// model.
Result<LoadedModel> read_model(const std::filesystem::path& folder);

/// The weight of a parameter or state tensor; MODEL_FILE_INVALID if it is missing or of another
/// type.
Result<const TensorView*> find_weight(const SafetensorsFile& weights, const TensorInfo& tensor);

}  // namespace trainyard
