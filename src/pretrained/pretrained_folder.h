// src/pretrained/pretrained_folder.h: reads the folder of a language model of transformers.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "src/base/files.h"
#include "src/base/result.h"
#include "src/checkpoint/weights_file.h"
#include "src/data/tokenizers/tokenizer_files.h"
#include "src/models/families/family.h"

namespace trainyard {

struct PretrainedFolder {
  std::filesystem::path path;
  std::string
      title;  // of the model: "HuggingFaceTB/SmolLM2-135M" by config.json, or the folder's name
  LanguageModel model;
  std::string config;             // the text of config.json
  std::filesystem::path weights;  // a safetensors file or an index; empty if the folder has none
  /// The tensors of the weights, by the library's names; without weights, those that they would
  /// have according to config.json.
  std::vector<FileTensor> tensors;
};

/// Errors: FILE_NOT_FOUND without config.json; those of read_model_config() and of
/// WeightsFile::open(); MODEL_FILE_INVALID if the weights are not those of the config.
Result<PretrainedFolder> read_pretrained_folder(const std::filesystem::path& folder);

/// Writes the network (model.yaml, as under 'model:' in a job file) and the weights
/// (model.safetensors, under the library's names) into a new folder. FILE_EXISTS if it exists.
Status write_pretrained(Files& files, const PretrainedFolder& read,
                        const std::filesystem::path& folder);

/// Reads the files of the folder's tokenizer, without interpreting them.
Result<TokenizerFiles> read_tokenizer_files(const std::filesystem::path& folder);

/// Returns the network in the format of a job file, without the key `model`:
/// "decoder: {n_embd: 576, ...}".
std::string network_to_yaml(const ModelSpec& network);

}  // namespace trainyard
