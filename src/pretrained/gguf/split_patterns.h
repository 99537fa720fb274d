// src/pretrained/gguf/split_patterns.h: how the tokenizers of bytes cut a text into words before
// pairs are joined. GGUF files only have a name of it, tokenizer.ggml.pre.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace trainyard {

struct SplitPattern {
  enum class Cut : uint8_t {
    kPattern,  // by `pattern`
    kGpt2,     // as GPT-2 does
    kDigits,   // digit by digit, and the rest as GPT-2 does
  };
  std::array<std::string_view, 4> names;  // values of tokenizer.ggml.pre
  Cut cut = Cut::kPattern;
  std::string_view pattern = {};
  bool composes = false;           // the text becomes NFC before
  bool keeps_whole_words = false;  // a word that is a token is not built from pairs
  bool begins = false;             // the begin token is added unless the file says otherwise
};

/// Returns null for a name that is not known.
const SplitPattern* find_split_pattern(std::string_view name);
/// "gpt-2, llama-bpe, ..."
std::string split_pattern_names();

}  // namespace trainyard
