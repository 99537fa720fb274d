// src/pretrained/adapter_folder.h: reads the folder of a LoRA adapter as PEFT writes it.
#pragma once

#include <filesystem>

#include "src/base/result.h"
#include "src/models/model_spec.h"

namespace trainyard {

struct AdapterFolder {
  LoraSpec lora;                  // the settings of adapter_config.json
  std::filesystem::path weights;  // adapter_model.safetensors
};

/// Errors: FILE_NOT_FOUND without one of the two files; MODEL_FILE_INVALID for a config that is
/// none; MODEL_UNSUPPORTED names all settings of the config that are not supported.
Result<AdapterFolder> read_adapter_folder(const std::filesystem::path& folder);

/// Writes `folder`, which must exist, with links to the files of a model's weights and of an
/// adapter, and an index of all their tensors, whose path is returned: WeightsFile::open() then
/// gives both as one list. `weights`: a safetensors file or an index. Errors: those of
/// WeightsFile::open(), STORAGE_ERROR.
Result<std::filesystem::path> join_adapter(const std::filesystem::path& weights,
                                           const std::filesystem::path& adapter,
                                           const std::filesystem::path& folder);

}  // namespace trainyard
