// client/cli/gguf_model.h: GGUF files where commands expect the folder of a language model.
#pragma once

#include <filesystem>
#include <vector>

#include "client/cli/temporary_folder.h"
#include "src/pretrained/gguf/unpack_gguf.h"
#include "trainyard/v1/spec_file.pb.h"

namespace trainyard::cli {

/// Returns whether the path is that of a GGUF file, by its name or its content.
bool names_gguf(const std::filesystem::path& path);

struct ModelFolder {
  std::filesystem::path path;
  /// If the model is a GGUF file, the tensors that its weights have in a folder.
  std::vector<FileTensor> tensors = {};
};

/// Returns the folder itself, or a new folder in `scratch` to which `parts` of the GGUF file are
/// written. Errors: those of unpack_gguf().
Result<ModelFolder> model_folder(const std::filesystem::path& model, TemporaryFolder& scratch,
                                 GgufParts parts);

/// If the dataset's documents are read by the tokenizer of a GGUF file, writes that tokenizer to
/// `scratch` and makes it the dataset's. `folder`: that to which paths of `file` are relative.
/// Errors name dataset.documents.tokenizer.
Status unpack_tokenizer(const std::filesystem::path& folder, TemporaryFolder& scratch,
                        v1::DatasetFile& file);

}  // namespace trainyard::cli
