// src/pretrained/gguf/gguf_vocabulary.h: the tables of a GGUF file's tokenizer, and its special
// tokens.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.h"
#include "src/pretrained/gguf/gguf_file.h"

namespace trainyard {

enum class GgufTokenType : uint8_t {
  kNormal = 1,
  kUnknown,
  kControl,      // a special token
  kUserDefined,  // found in a text before it is cut, but not special
  kUnused,       // a row of the model's table that no token has
  kByte
};

struct GgufVocabulary {
  std::vector<std::string_view> tokens;  // UTF-8, not empty; they refer to the file
  std::vector<GgufTokenType> types;
  std::vector<float> scores;             // empty: there are none
  std::vector<std::string_view> merges;  // "a b"
  std::optional<int64_t> begin, end, unknown, padding;
  std::vector<int64_t> stops;  // at which generation ends, `end` first
  std::optional<bool> add_begin, add_end;

  std::string_view name(const std::optional<int64_t>& id) const {
    return id ? tokens[static_cast<size_t>(*id)] : std::string_view();
  }
};

/// Error: MODEL_FILE_INVALID names the setting.
Result<GgufVocabulary> read_gguf_vocabulary(const GgufFile& file);

}  // namespace trainyard
