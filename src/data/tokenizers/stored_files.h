// src/data/tokenizers/stored_files.h: the files of a tokenizer as a part of a JSON file: each is
// compressed, since a vocabulary may have 20 MB.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "src/base/result.h"
#include "src/data/tokenizers/tokenizer_files.h"

namespace trainyard {

/// Limits of what is read from JSON, which are checked before memory is allocated.
inline constexpr int64_t kTokenizerFileBytesMax = int64_t{64} << 20;
inline constexpr size_t kTokenizerFilesMax = 16;

nlohmann::json stored_files(const TokenizerFiles& files);
/// Refusal: TOKENIZER_INVALID.
Result<TokenizerFiles> read_stored_files(const nlohmann::json& json);

}  // namespace trainyard
