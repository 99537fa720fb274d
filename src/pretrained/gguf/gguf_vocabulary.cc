#include "src/pretrained/gguf/gguf_vocabulary.h"

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "src/base/text.h"

namespace trainyard {
namespace {

constexpr uint64_t kTokensMax = uint64_t{1} << 20, kMergesMax = uint64_t{1} << 22;
constexpr size_t kTokenBytesMax = 1024;
constexpr const char* kTokensKey = "tokenizer.ggml.tokens";
constexpr const char* kTypesKey = "tokenizer.ggml.token_type";
constexpr const char* kScoresKey = "tokenizer.ggml.scores";
constexpr const char* kMergesKey = "tokenizer.ggml.merges";

std::string place(const char* key, size_t i) {
  return std::string(key) + "[" + std::to_string(i) + "]";
}

/// Returns the elements of an array; none if the setting is absent.
Result<std::vector<GgufValue>> read_list(const GgufFile& file, const char* key, uint64_t max) {
  const GgufValue* value = file.find(key);
  if (value == nullptr) return std::vector<GgufValue>();
  if (value->type != GgufType::kArray) return gguf_error(key, "expected an array");
  if (value->count > max) {
    return gguf_error(key, "has " + std::to_string(value->count) + " elements, expected at most " +
                               std::to_string(max));
  }
  return value->elements();
}

Result<std::vector<std::string_view>> read_texts(const GgufFile& file, const char* key,
                                                 uint64_t max, size_t bytes_max) {
  ASSIGN_OR_RETURN(const std::vector<GgufValue> list, read_list(file, key, max));
  std::vector<std::string_view> texts;
  texts.reserve(list.size());
  for (const GgufValue& element : list) {
    const auto text = element.text();
    if (!text || text->empty() || text->size() > bytes_max || !is_utf8(*text)) {
      return gguf_error(place(key, texts.size()),
                        "expected 1 to " + std::to_string(bytes_max) + " bytes of UTF-8");
    }
    texts.push_back(*text);
  }
  return texts;
}

Status read_tokens(const GgufFile& file, GgufVocabulary& out) {
  ASSIGN_OR_RETURN(out.tokens, read_texts(file, kTokensKey, kTokensMax, kTokenBytesMax));
  if (out.tokens.empty()) return gguf_error(kTokensKey, "is missing or empty");
  std::unordered_set<std::string_view> names;
  for (size_t i = 0; i < out.tokens.size(); ++i) {
    if (names.insert(out.tokens[i]).second) continue;
    return gguf_error(place(kTokensKey, i), quoted_value(out.tokens[i]) + " is there twice");
  }
  return {};
}

/// Checks that a list has an element for each token, or none at all.
Status check_length(const char* key, size_t length, const GgufVocabulary& vocabulary) {
  if (length == 0 || length == vocabulary.tokens.size()) return {};
  return gguf_error(key, "has " + std::to_string(length) + " elements, expected " +
                             std::to_string(vocabulary.tokens.size()) + ", one for each token");
}

Status read_types(const GgufFile& file, GgufVocabulary& out) {
  ASSIGN_OR_RETURN(const std::vector<GgufValue> list, read_list(file, kTypesKey, kTokensMax));
  if (Status s = check_length(kTypesKey, list.size(), out); !s.ok()) return s;
  out.types.assign(out.tokens.size(), GgufTokenType::kNormal);
  for (size_t i = 0; i < list.size(); ++i) {
    const auto type = list[i].integer();
    if (!type || *type < 1 || *type > 6) {
      return gguf_error(place(kTypesKey, i), "expected a number from 1 to 6");
    }
    out.types[i] = static_cast<GgufTokenType>(*type);
  }
  return {};
}

Status read_scores(const GgufFile& file, GgufVocabulary& out) {
  ASSIGN_OR_RETURN(const std::vector<GgufValue> list, read_list(file, kScoresKey, kTokensMax));
  if (Status s = check_length(kScoresKey, list.size(), out); !s.ok()) return s;
  for (const GgufValue& element : list) {
    const auto score = element.real();
    if (!score || !std::isfinite(static_cast<float>(*score))) {
      return gguf_error(place(kScoresKey, out.scores.size()), "expected a number");
    }
    out.scores.push_back(static_cast<float>(*score));
  }
  return {};
}

/// Reads the id of a special token. The greatest number of 32 bits stands for none.
Result<std::optional<int64_t>> read_id(const GgufFile& file, const GgufVocabulary& vocabulary,
                                       const std::string& role) {
  const std::string key = "tokenizer.ggml." + role + "_token_id";
  ASSIGN_OR_RETURN(const std::optional<int64_t> id, file.index(key, UINT32_MAX));
  if (!id || *id == UINT32_MAX) return std::optional<int64_t>();
  if (*id < std::ssize(vocabulary.tokens)) return id;
  return gguf_error(key, "is " + std::to_string(*id) + ", but there are " +
                             std::to_string(vocabulary.tokens.size()) + " tokens");
}

Status read_special(const GgufFile& file, GgufVocabulary& out) {
  ASSIGN_OR_RETURN(out.begin, read_id(file, out, "bos"));
  ASSIGN_OR_RETURN(out.end, read_id(file, out, "eos"));
  ASSIGN_OR_RETURN(out.unknown, read_id(file, out, "unknown"));
  ASSIGN_OR_RETURN(out.padding, read_id(file, out, "padding"));
  if (out.end) out.stops.push_back(*out.end);
  for (const char* role : {"eot", "eom"}) {  // the ends of a turn and of a message
    ASSIGN_OR_RETURN(const auto id, read_id(file, out, role));
    if (id && std::ranges::count(out.stops, *id) == 0) out.stops.push_back(*id);
  }
  ASSIGN_OR_RETURN(out.add_begin, file.flag("tokenizer.ggml.add_bos_token"));
  ASSIGN_OR_RETURN(out.add_end, file.flag("tokenizer.ggml.add_eos_token"));
  return {};
}

}  // namespace

Result<GgufVocabulary> read_gguf_vocabulary(const GgufFile& file) {
  GgufVocabulary out;
  Status s = read_tokens(file, out);
  if (s.ok()) s = read_types(file, out);
  if (s.ok()) s = read_scores(file, out);
  if (s.ok()) s = read_special(file, out);
  if (!s.ok()) return std::move(s).error();
  ASSIGN_OR_RETURN(out.merges, read_texts(file, kMergesKey, kMergesMax, 2 * kTokenBytesMax + 1));
  return out;
}

}  // namespace trainyard
