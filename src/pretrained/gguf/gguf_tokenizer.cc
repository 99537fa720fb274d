#include "src/pretrained/gguf/gguf_tokenizer.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "src/base/glob.h"
#include "src/base/protobuf_message.h"
#include "src/base/text.h"
#include "src/pretrained/gguf/gguf_vocabulary.h"
#include "src/pretrained/gguf/split_patterns.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;

constexpr const char* kModelKey = "tokenizer.ggml.model";
constexpr const char* kSplitKey = "tokenizer.ggml.pre";
constexpr std::string_view kBlankMark = "\xe2\x96\x81";  // U+2581 in place of a blank

/// Settings that are read, or change no tokens.
constexpr std::array kKnownSettings = std::to_array<std::string_view>(
    {"tokenizer.ggml.model", "tokenizer.ggml.pre", "tokenizer.ggml.tokens",
     "tokenizer.ggml.token_type", "tokenizer.ggml.scores", "tokenizer.ggml.merges",
     "tokenizer.ggml.add_bos_token", "tokenizer.ggml.add_eos_token",
     "tokenizer.ggml.add_space_prefix", "tokenizer.ggml.remove_extra_whitespaces",
     "tokenizer.ggml.*_token_id", "tokenizer.ggml.token_type_count", "tokenizer.chat_template*",
     "tokenizer.chat_templates", "tokenizer.huggingface.json"});

Error unsupported_tokenizer(std::string_view key, const std::string& what) {
  return make_error(ErrorCode::kInvalidArgument, "MODEL_UNSUPPORTED",
                    std::string(key) + ": " + what);
}

Status check_settings(const GgufFile& file) {
  for (const auto& setting : file.settings()) {
    const std::string& key = setting.first;
    if (!key.starts_with("tokenizer.") || setting.second.flag() == false) continue;
    const bool known = std::ranges::any_of(
        kKnownSettings, [&](std::string_view pattern) { return glob_match(pattern, key); });
    if (known) continue;
    return unsupported_tokenizer(quoted_value(key),
                                 "it is not known whether this setting changes tokens");
  }
  return {};
}

bool is_added(GgufTokenType type) {
  return type == GgufTokenType::kControl || type == GgufTokenType::kUnknown ||
         type == GgufTokenType::kUserDefined;
}

Json added_tokens(const GgufVocabulary& vocabulary) {
  Json list = Json::array();
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const GgufTokenType type = vocabulary.types[id];
    if (!is_added(type)) continue;
    list.push_back({{"id", id},
                    {"content", vocabulary.tokens[id]},
                    {"single_word", false},
                    {"lstrip", false},
                    {"rstrip", false},
                    {"normalized", false},
                    {"special", type != GgufTokenType::kUserDefined}});
  }
  return list;
}

Json byte_level(bool cuts) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", cuts}};
}

Json pre_tokenizer(const SplitPattern& split) {
  if (split.cut == SplitPattern::Cut::kGpt2) return byte_level(true);
  Json first = {{"type", "Digits"}, {"individual_digits", true}};
  const bool by_pattern = split.cut == SplitPattern::Cut::kPattern;
  if (by_pattern) {
    first = {{"type", "Split"},
             {"pattern", {{"Regex", split.pattern}}},
             {"behavior", "Isolated"},
             {"invert", false}};
  }
  return {{"type", "Sequence"},
          {"pretokenizers", Json::array({std::move(first), byte_level(!by_pattern)})}};
}

/// The begin and end tokens around a text; null: none.
Json post_processor(const GgufVocabulary& vocabulary, const SplitPattern& split) {
  Json single = Json::array(), specials = Json::object();
  const auto add = [&](const std::optional<int64_t>& id) {
    const std::string name(vocabulary.name(id));
    single.push_back({{"SpecialToken", {{"id", name}, {"type_id", 0}}}});
    specials[name] = {{"id", name}, {"ids", {*id}}, {"tokens", {name}}};
  };
  if (vocabulary.begin && vocabulary.add_begin.value_or(split.begins)) add(vocabulary.begin);
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  if (vocabulary.end && vocabulary.add_end.value_or(false)) add(vocabulary.end);
  if (specials.empty()) return nullptr;
  return {{"type", "TemplateProcessing"},
          {"single", single},
          {"pair", Json::array()},
          {"special_tokens", specials}};
}

Status check_merges(const GgufVocabulary& vocabulary) {
  const std::unordered_set<std::string_view> tokens(vocabulary.tokens.begin(),
                                                    vocabulary.tokens.end());
  for (size_t i = 0; i < vocabulary.merges.size(); ++i) {
    const std::string_view merge = vocabulary.merges[i];
    const std::string key = "tokenizer.ggml.merges[" + std::to_string(i) + "]";
    const size_t blank = merge.find(' ');
    if (blank == std::string_view::npos || merge.find(' ', blank + 1) != std::string_view::npos) {
      return gguf_error(key, "expected two tokens with a blank between them");
    }
    const std::string_view left = merge.substr(0, blank), right = merge.substr(blank + 1);
    const std::string whole = std::string(left) + std::string(right);
    for (const std::string_view token : {left, right, std::string_view(whole)}) {
      if (tokens.contains(token)) continue;
      return gguf_error(key, "there is no token " + quoted_value(token));
    }
  }
  return {};
}

Result<std::string> tokenizer_json(const GgufFile& file, const GgufVocabulary& vocabulary) {
  ASSIGN_OR_RETURN(const auto name, file.text(kSplitKey));
  const SplitPattern* const split = find_split_pattern(name.value_or(""));
  if (split == nullptr) {
    return unsupported_tokenizer(
        kSplitKey, (name ? quoted_value(*name) + " is not supported" : std::string("is missing")) +
                       ", expected " + split_pattern_names());
  }
  ASSIGN_OR_RETURN(const auto adds_blank, file.flag("tokenizer.ggml.add_space_prefix"));
  if (adds_blank.value_or(false)) {
    return unsupported_tokenizer("tokenizer.ggml.add_space_prefix", "is true, expected false");
  }
  if (Status s = check_merges(vocabulary); !s.ok()) return std::move(s).error();
  Json tokens = Json::object();
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (vocabulary.types[id] == GgufTokenType::kUnused) continue;
    tokens[std::string(vocabulary.tokens[id])] = id;
  }
  const Json json = {{"version", "1.0"},
                     {"truncation", nullptr},
                     {"padding", nullptr},
                     {"added_tokens", added_tokens(vocabulary)},
                     {"normalizer", split->composes ? Json{{"type", "NFC"}} : Json()},
                     {"pre_tokenizer", pre_tokenizer(*split)},
                     {"post_processor", post_processor(vocabulary, *split)},
                     {"decoder", byte_level(true)},
                     {"model",
                      {{"type", "BPE"},
                       {"dropout", nullptr},
                       {"unk_token", nullptr},
                       {"continuing_subword_prefix", nullptr},
                       {"end_of_word_suffix", nullptr},
                       {"fuse_unk", false},
                       {"byte_fallback", false},
                       {"ignore_merges", split->keeps_whole_words},
                       {"vocab", std::move(tokens)},
                       {"merges", vocabulary.merges}}}};
  return json.dump();
}

std::string bytes_of(const ProtobufMessage& message) {
  std::string bytes;
  for (const std::span<const std::byte> part : message.parts()) {
    bytes.append(reinterpret_cast<const char*>(part.data()), part.size());
  }
  return bytes;
}

/// A user-defined piece as SentencePiece's models have it: with marks in place of blanks.
std::string piece_text(std::string_view token, GgufTokenType type) {
  std::string text;
  for (const char c : token) {
    const bool is_blank = c == ' ' && type == GgufTokenType::kUserDefined;
    text += is_blank ? kBlankMark : std::string_view(&c, 1);
  }
  return text;
}

/// Returns the bytes of a SentencePiece model. Numbers of fields are those of its messages.
Result<std::string> piece_model(const GgufFile& file, const GgufVocabulary& vocabulary) {
  if (vocabulary.scores.empty()) return gguf_error("tokenizer.ggml.scores", "is missing");
  ASSIGN_OR_RETURN(const auto add_blank, file.flag("tokenizer.ggml.add_space_prefix"));
  ASSIGN_OR_RETURN(const auto drop_blanks, file.flag("tokenizer.ggml.remove_extra_whitespaces"));
  ProtobufMessage model;
  size_t count = vocabulary.tokens.size();
  while (count > 0 && vocabulary.types[count - 1] == GgufTokenType::kUnused) --count;
  for (size_t id = 0; id < count; ++id) {
    ProtobufMessage piece;
    piece.add_text(1, piece_text(vocabulary.tokens[id], vocabulary.types[id]));
    piece.add_float(2, vocabulary.scores[id]);
    piece.add_int(3, static_cast<int64_t>(vocabulary.types[id]));
    model.add_message(1, std::move(piece));
  }
  ProtobufMessage trainer;
  trainer.add_int(3, 2);  // model_type: BPE
  trainer.add_int(35, std::ranges::count(vocabulary.types, GgufTokenType::kByte) > 0 ? 1 : 0);
  trainer.add_int(40, vocabulary.unknown.value_or(0));
  trainer.add_int(41, vocabulary.begin.value_or(-1));
  trainer.add_int(42, vocabulary.end.value_or(-1));
  trainer.add_int(43, vocabulary.padding.value_or(-1));
  model.add_message(2, std::move(trainer));
  ProtobufMessage normalizer;
  normalizer.add_int(3, add_blank.value_or(true) ? 1 : 0);
  normalizer.add_int(4, drop_blanks.value_or(false) ? 1 : 0);
  normalizer.add_int(5, 1);  // blanks become marks
  model.add_message(3, std::move(normalizer));
  return bytes_of(model);
}

Result<std::string> tokenizer_config(const GgufFile& file, const GgufVocabulary& vocabulary) {
  Json config = Json::object();
  for (const auto& [key, id] :
       {std::pair("bos_token", &vocabulary.begin), std::pair("eos_token", &vocabulary.end),
        std::pair("unk_token", &vocabulary.unknown), std::pair("pad_token", &vocabulary.padding)}) {
    if (*id) config[key] = vocabulary.name(*id);
  }
  if (vocabulary.add_begin) config["add_bos_token"] = *vocabulary.add_begin;
  if (vocabulary.add_end) config["add_eos_token"] = *vocabulary.add_end;
  ASSIGN_OR_RETURN(const auto chat, file.text("tokenizer.chat_template"));
  if (chat) config["chat_template"] = *chat;
  return config.dump(2);
}

}  // namespace

Result<TokenizerFiles> gguf_tokenizer(const GgufFile& file) {
  ASSIGN_OR_RETURN(const auto model, file.text(kModelKey));
  if (!model || *model == "none") return TokenizerFiles();
  if (*model != "gpt2" && *model != "llama") {
    return unsupported_tokenizer(
        kModelKey, quoted_value(*model) + " is not supported, expected gpt2 or llama");
  }
  if (Status s = check_settings(file); !s.ok()) return std::move(s).error();
  ASSIGN_OR_RETURN(const GgufVocabulary vocabulary, read_gguf_vocabulary(file));
  TokenizerFiles files;
  if (*model == "gpt2") {
    ASSIGN_OR_RETURN(files["tokenizer.json"], tokenizer_json(file, vocabulary));
  } else {
    ASSIGN_OR_RETURN(files["tokenizer.model"], piece_model(file, vocabulary));
  }
  ASSIGN_OR_RETURN(files["tokenizer_config.json"], tokenizer_config(file, vocabulary));
  if (!vocabulary.stops.empty()) {
    files["generation_config.json"] = Json{{"eos_token_id", vocabulary.stops}}.dump(2);
  }
  return files;
}

}  // namespace trainyard
