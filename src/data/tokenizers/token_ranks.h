// src/data/tokenizers/token_ranks.h: reads Mistral's tekken.json: tokens as bytes with ranks, by
// which neighbors are joined (bpe_model.h), and the pattern that cuts a text into words.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "src/data/tokenizers/token_pipeline.h"

namespace trainyard {

/// The caller calls finish(). `file` is the name in messages. Refusal:
/// INVALID_ARGUMENT/TOKENIZER_INVALID.
Result<std::shared_ptr<TokenPipeline>> read_tekken(std::string_view text, const std::string& file);

}  // namespace trainyard
