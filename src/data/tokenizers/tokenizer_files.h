// src/data/tokenizers/tokenizer_files.h: the files of a tokenizer that somebody else has made, by
// their names in a folder of a Hugging Face model.
//
//   tokenizer.json          the tokenizer, else one of the following:
//   tokenizer.model         a SentencePiece model, or the ranks of tiktoken
//   tekken.json             Mistral's ranks
//   tokenizer_config.json   optional: special tokens, chat_template
//   special_tokens_map.json, added_tokens.json, generation_config.json, chat_template.jinja,
//   chat_template.json      optional
//
// A single file may have any name that ends in .json, .model or .txt; it is found by its content.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace trainyard {

using TokenizerFiles = std::map<std::string, std::string, std::less<>>;

/// Returns true for the names of the files that describe a folder's tokenizer and chat template,
/// which is what a client uploads.
bool is_tokenizer_file(std::string_view name);

}  // namespace trainyard
