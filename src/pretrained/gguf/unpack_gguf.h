// src/pretrained/gguf/unpack_gguf.h: writes what is in a GGUF file as the folder of a language
// model, so that nothing else has to know the format.
//
//   config.json                               the network
//   tokenizer.json or tokenizer.model, ...    the tokenizer, if the file has one
//   model.safetensors                         the weights, widened exactly
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "src/base/files.h"
#include "src/base/result.h"
#include "src/checkpoint/weights_file.h"

namespace trainyard {

enum class GgufParts : uint8_t {
  kTokenizer,    // which the file must have
  kDescription,  // the network and the tokenizer
  kAll
};

/// Writes the files into `folder`, which is created. Returns the tensors of the weights, in the
/// types in which kAll stores them; none of kTokenizer. Errors begin with the file's name and the
/// field: MODEL_FILE_INVALID, MODEL_UNSUPPORTED, those of read_model_config() and of `files`.
Result<std::vector<FileTensor>> unpack_gguf(Files& files, const std::filesystem::path& file,
                                            const std::filesystem::path& folder, GgufParts parts);

}  // namespace trainyard
