// src/pretrained/export_folder.h: writes a trained language model as a folder that transformers,
// and the programs that read its folders, load.
//
//   config.json, model.safetensors   the network and its weights in F32, by transformers' names;
//   the
//                                    adapter of a job with recipe.lora is merged into them
//   tokenizer.json, ...              the tokenizer's files, as they came in
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "src/base/files.h"
#include "src/base/result.h"

namespace trainyard {

struct ExportedFolder {
  std::string family;                 // of the network: "llama"
  std::vector<std::string> files;     // their names, sorted
  std::vector<std::string> warnings;  // what the folder lacks, one sentence each
};

/// Checks whether an export to `folder` is possible, before a model is fetched for it:
/// ALREADY_EXISTS/FILE_EXISTS if it exists and is not an empty folder, unless `overwrite` and it
/// has a config.json.
Status check_export_folder(const std::filesystem::path& folder, bool overwrite);

/// Writes `folder` atomically from a model's folder, which the job or `model export` wrote. Errors:
/// those of check_export_folder(), read_model(), write_model_config() and `files`.
Result<ExportedFolder> export_language_model(Files& files, const std::filesystem::path& model,
                                             const std::filesystem::path& folder, bool overwrite);

}  // namespace trainyard
