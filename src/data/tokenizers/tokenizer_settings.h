// src/data/tokenizers/tokenizer_settings.h: what the other files of a folder say about its
// tokenizer: tokenizer_config.json, special_tokens_map.json, added_tokens.json,
// generation_config.json, chat_template.jinja and chat_template.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/data/tokenizers/added_tokens.h"
#include "src/data/tokenizers/token_pipeline.h"
#include "src/data/tokenizers/tokenizer_files.h"

namespace trainyard {

struct TokenizerSettings {
  // The names of tokens; empty: not said.
  std::string begin, end, unknown, padding;
  std::optional<bool> add_begin, add_end;  // whether the tokenizer puts them around a text
  std::vector<AddedToken> added;           // by rising id
  std::vector<int32_t> stop_ids;           // of generation_config.json
  std::string chat_template;
};

/// Refusal: INVALID_ARGUMENT/TOKENIZER_INVALID.
Result<TokenizerSettings> read_tokenizer_settings(const TokenizerFiles& files);

}  // namespace trainyard
