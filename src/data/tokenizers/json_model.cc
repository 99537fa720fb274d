#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "src/base/text.h"
#include "src/data/tokenizers/bpe_model.h"
#include "src/data/tokenizers/byte_letters.h"
#include "src/data/tokenizers/file_fields.h"
#include "src/data/tokenizers/json_parts.h"
#include "src/data/tokenizers/unigram_model.h"
#include "src/data/tokenizers/word_piece_model.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;

/// Reads {"token": id, ...}.
Result<std::shared_ptr<TokenNames>> read_vocabulary(FileFields& fields) {
  const std::string path = fields.path_of("vocab");
  const Json* vocab = fields.find("vocab");
  if (vocab == nullptr || !vocab->is_object()) {
    return tokenizer_error(path, "expected an object with the id of each token");
  }
  auto names = std::make_shared<TokenNames>();
  // A few ids may have no token, but not most of them.
  constexpr int64_t kGapsMax = 65536;
  const int64_t id_max =
      std::min(TokenNames::kTokensMax - 1, 2 * static_cast<int64_t>(vocab->size()) + kGapsMax);
  for (const auto& item : vocab->items()) {
    const Json& id = item.value();
    if (!id.is_number_unsigned() || id.get<uint64_t>() > static_cast<uint64_t>(id_max)) {
      return tokenizer_error(path, "the id of " + quoted_value(item.key()) +
                                       " is not a whole number from 0 to " +
                                       std::to_string(id_max));
    }
    if (!is_utf8(item.key())) {
      return tokenizer_error(path, quoted_value(item.key()) + " is not UTF-8");
    }
    if (Status s = names->add(item.key(), id.get<int64_t>(), path); !s.ok()) {
      return std::move(s).error();
    }
  }
  return names;
}

/// Reads "a b" or ["a", "b"].
std::optional<std::pair<std::string, std::string>> read_merge(const Json& merge) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    return std::pair(merge[0].get<std::string>(), merge[1].get<std::string>());
  }
  if (!merge.is_string()) return std::nullopt;
  const auto text = merge.get<std::string>();
  const size_t blank = text.find(' ');
  if (blank == std::string::npos || text.find(' ', blank + 1) != std::string::npos) {
    return std::nullopt;
  }
  return std::pair(text.substr(0, blank), text.substr(blank + 1));
}

Result<std::vector<BpeMerge>> read_merges(FileFields& fields, const TokenNames& names,
                                          const std::string& prefix) {
  const std::string path = fields.path_of("merges");
  const Json* list = fields.find("merges");
  if (list == nullptr || !list->is_array()) return tokenizer_error(path, "expected a list");
  std::vector<BpeMerge> merges;
  merges.reserve(list->size());
  for (const Json& entry : *list) {
    const auto refuse = [&](const std::string& what) {
      return tokenizer_error(path + "[" + std::to_string(merges.size()) + "]", what);
    };
    const auto merge = read_merge(entry);
    if (!merge) return refuse("expected two tokens");
    const auto& [left, right] = *merge;
    if (!right.starts_with(prefix)) {
      return refuse(quoted_value(right) + " does not begin with continuing_subword_prefix");
    }
    const std::string whole = left + right.substr(prefix.size());
    const BpeMerge ids{names.find(left), names.find(right), static_cast<int32_t>(merges.size()),
                       names.find(whole)};
    for (const auto& [token, id] : {std::pair(&left, ids.left), std::pair(&right, ids.right),
                                    std::pair(&whole, ids.result)}) {
      if (id < 0) return refuse("the vocabulary has no token " + quoted_value(*token));
    }
    merges.push_back(ids);
  }
  return merges;
}

/// Returns the bytes of each token; nullopt for those with letters that stand for no byte.
std::vector<std::optional<std::string>> bytes_of_names(const TokenNames& names) {
  std::vector<std::optional<std::string>> bytes(static_cast<size_t>(names.size()));
  for (int32_t id = 0; id < names.size(); ++id) {
    if (!names.name(id).empty()) bytes[static_cast<size_t>(id)] = bytes_of_letters(names.name(id));
  }
  return bytes;
}

bool has_all_bytes(const TokenNames& names) {
  for (int byte = 0; byte < 256; ++byte) {
    const char one = static_cast<char>(byte);
    if (names.find(letters_of_bytes({&one, 1})) < 0) return false;
  }
  return true;
}

Status read_bpe(FileFields& fields, bool byte_letters, TokenPipeline& out) {
  ASSIGN_OR_RETURN(const std::shared_ptr<TokenNames> names, read_vocabulary(fields));
  BpeSettings settings;
  const Json* dropout = fields.find("dropout");
  if (dropout != nullptr && *dropout != 0.0) {
    fields.refuse("dropout", "ids would be drawn at random; expected null or 0");
  }
  settings.continuing_prefix = fields.text("continuing_subword_prefix");
  settings.end_suffix = fields.text("end_of_word_suffix");
  settings.fuse_unknown = fields.flag("fuse_unk", false);
  settings.byte_fallback = fields.flag("byte_fallback", false);
  settings.whole_words = fields.flag("ignore_merges", false);
  const bool bytes = byte_letters && settings.continuing_prefix.empty() &&
                     settings.end_suffix.empty() && !settings.byte_fallback;
  const Json* unknown = fields.find("unk_token");
  if (const std::string token = fields.text("unk_token"); unknown != nullptr) {
    const int32_t id = names->find(token);
    if (id >= 0) settings.unknown = id;
    if (id < 0 && !(bytes && has_all_bytes(*names))) {
      fields.refuse("unk_token", "the vocabulary has no token " + quoted_value(token));
    }
  }
  if (Status s = fields.status(); !s.ok()) return s;
  ASSIGN_OR_RETURN(const std::vector<BpeMerge> merges,
                   read_merges(fields, *names, settings.continuing_prefix));
  if (Status s = fields.finish(); !s.ok()) return s;
  std::vector<std::optional<std::string>> texts;
  if (bytes) texts = bytes_of_names(*names);
  out.names = names;
  out.model = std::make_unique<BpeModel>(names, merges, std::move(settings), std::move(texts));
  return {};
}

Status read_unigram(FileFields& fields, TokenPipeline& out) {
  const std::string path = fields.path_of("vocab");
  const Json* vocab = fields.find("vocab");
  if (vocab == nullptr || !vocab->is_array() || vocab->empty()) {
    return tokenizer_error(path, "expected a list of tokens and scores");
  }
  auto names = std::make_shared<TokenNames>();
  std::vector<double> scores;
  for (const Json& entry : *vocab) {
    const std::string at = path + "[" + std::to_string(scores.size()) + "]";
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number() ||
        !std::isfinite(entry[1].get<double>()) || !is_utf8(entry[0].get<std::string>())) {
      return tokenizer_error(at, "expected a token and its score");
    }
    if (Status s = names->add(entry[0].get<std::string>(), std::ssize(scores), at); !s.ok()) {
      return s;
    }
    scores.push_back(entry[1].get<double>());
  }
  UnigramSettings settings;
  settings.unknown = static_cast<int32_t>(fields.integer("unk_id", -1, 0, names->size() - 1));
  settings.byte_fallback = fields.flag("byte_fallback", false);
  if (Status s = fields.finish(); !s.ok()) return s;
  if (settings.unknown < 0 && !settings.byte_fallback) {
    return tokenizer_error(fields.path_of("unk_id"), "expected the id of the unknown token");
  }
  out.names = names;
  out.model = std::make_unique<UnigramModel>(names, std::move(scores), std::move(settings),
                                             std::vector<bool>());
  return {};
}

Status read_words(FileFields& fields, bool pieces, TokenPipeline& out) {
  ASSIGN_OR_RETURN(const std::shared_ptr<TokenNames> names, read_vocabulary(fields));
  const std::string token = fields.text("unk_token", pieces ? "[UNK]" : "");
  const int32_t unknown = names->find(token);
  if (unknown < 0 && (pieces || !token.empty())) {
    fields.refuse("unk_token", "the vocabulary has no token " + quoted_value(token));
  }
  out.names = names;
  if (!pieces) {
    out.model = std::make_unique<WordLevelModel>(names, unknown);
    return fields.finish();
  }
  std::string prefix = fields.text("continuing_subword_prefix", "##");
  const int64_t characters_max = fields.integer("max_input_chars_per_word", 100, 1, 1 << 20);
  if (Status s = fields.finish(); !s.ok()) return s;
  out.model = std::make_unique<WordPieceModel>(names, unknown, std::move(prefix), characters_max);
  return {};
}

/// Returns the type of a model that does not say it, as in old files.
std::string guess_type(const Json& part) {
  if (!part.is_object()) return {};
  if (part.contains("merges")) return "BPE";
  if (part.contains("vocab") && part["vocab"].is_array()) return "Unigram";
  return part.contains("max_input_chars_per_word") ? "WordPiece" : "WordLevel";
}

}  // namespace

Status read_model(const Json& part, const std::string& path, bool byte_letters,
                  TokenPipeline& out) {
  FileFields fields(part, path);
  const std::string type = fields.text("type", guess_type(part));
  if (type == "BPE") return read_bpe(fields, byte_letters, out);
  if (type == "Unigram") return read_unigram(fields, out);
  if (type == "WordPiece" || type == "WordLevel") {
    return read_words(fields, type == "WordPiece", out);
  }
  if (Status s = fields.finish(); type.empty() && !s.ok()) return s;
  return tokenizer_error(path + ".type", quoted_value(type) +
                                             " is not known, expected BPE, Unigram, WordPiece or "
                                             "WordLevel");
}

}  // namespace trainyard
