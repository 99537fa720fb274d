// src/data/tokenizers/tokenizer_json.h: reads the file tokenizer.json of Hugging Face's library
// tokenizers. Every part and field that changes ids is done or refused by name.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "src/data/tokenizers/token_pipeline.h"

namespace trainyard {

/// The caller calls finish(). `file` is the name in messages. Refusal:
/// INVALID_ARGUMENT/TOKENIZER_INVALID.
Result<std::shared_ptr<TokenPipeline>> read_tokenizer_json(std::string_view text,
                                                           const std::string& file);

}  // namespace trainyard
