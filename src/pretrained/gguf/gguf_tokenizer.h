// src/pretrained/gguf/gguf_tokenizer.h: the tokenizer of a GGUF file as the files that a folder of
// transformers would have, so that it is read like any other (src/data/tokenizers).
//
//   tokenizer.ggml.model gpt2    tokenizer.json: pairs of bytes, cut by tokenizer.ggml.pre
//   tokenizer.ggml.model llama   tokenizer.model: a BPE model of SentencePiece
//   tokenizer.chat_template and special tokens   tokenizer_config.json, generation_config.json
#pragma once

#include "src/base/result.h"
#include "src/data/tokenizers/tokenizer_files.h"
#include "src/pretrained/gguf/gguf_file.h"

namespace trainyard {

/// Returns no files if the file has no tokenizer. Errors: MODEL_FILE_INVALID, or MODEL_UNSUPPORTED
/// for a setting that changes tokens in a way that is not known; they name the setting.
Result<TokenizerFiles> gguf_tokenizer(const GgufFile& file);

}  // namespace trainyard
