// src/inference/imported_model.h: makes a model that predicts and generates from weights that
// another program has trained, without a job.
#pragma once

#include <filesystem>

#include "src/artifact/model_artifact.h"
#include "src/base/files.h"
#include "src/base/result.h"

namespace trainyard {

/// Writes the folder of a model, `output`: `description` has the text of a model.json, which names
/// the network, the data and its preprocessing; `weights` is a safetensors file that any library of
/// src/models/naming may have written. Numbers of 16 bits stay as they are, those of other types
/// become F32. Tensors are aligned, so that jobs which begin with the model can map those that they
/// do not train (src/planning/frozen_storage.h). MODEL_FILE_INVALID if the description is damaged,
/// or if the weights are not exactly those of the network, all finite.
Result<ModelInfo> import_model(Files& files, const std::filesystem::path& description,
                               const std::filesystem::path& weights,
                               const std::filesystem::path& output);

}  // namespace trainyard
