// src/data/tokenizers/sentence_piece.h: reads SentencePiece's models, which are files
// tokenizer.model, and encodes as that library does. The library is not linked, so a malicious
// model is read only by the code of this room. The models that Trainyard itself trains are read by
// src/data/text.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "src/data/tokenizers/token_pipeline.h"

namespace trainyard {

struct SentencePieceTokens {
  int32_t begin = -1, end = -1, unknown = -1, padding = -1;  // ids; -1: none
};

/// The caller calls finish(). Sets `special` to the model's special tokens. `file` is the name in
/// messages. Refusal: INVALID_ARGUMENT/TOKENIZER_INVALID.
Result<std::shared_ptr<TokenPipeline>> read_sentence_piece(std::string_view bytes,
                                                           const std::string& file,
                                                           SentencePieceTokens& special);

}  // namespace trainyard
