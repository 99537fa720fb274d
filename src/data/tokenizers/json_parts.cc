#include "src/data/tokenizers/json_parts.h"

#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "src/base/base64.h"
#include "src/base/text.h"
#include "src/base/unicode.h"
#include "src/data/tokenizers/character_set.h"
#include "src/data/tokenizers/file_fields.h"
#include "src/data/tokenizers/pre_tokenizers.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kMetaspaceMark = "\xe2\x96\x81";  // U+2581

Error unknown_type(const std::string& path, const std::string& type, const std::string& known) {
  return tokenizer_error(path + ".type", quoted_value(type) + " is not known, expected " + known);
}

/// Reads the parts of a sequence one by one.
template <typename Add>
Status add_sequence(FileFields& fields, const char* key, const std::string& path, int depth,
                    Add add) {
  const Json* parts = fields.find(key);
  if (parts == nullptr || !parts->is_array()) {
    fields.refuse(key, "expected a list");
    return fields.finish();
  }
  if (depth >= kPartDepthMax) {
    return tokenizer_error(
        path, "more than " + std::to_string(kPartDepthMax) + " sequences inside each other");
  }
  size_t i = 0;
  for (const Json& part : *parts) {
    const std::string at = path + "." + key + "[" + std::to_string(i++) + "]";
    if (Status s = add(part, at); !s.ok()) return s;
  }
  return fields.finish();
}

/// Reads {"String": ...} or {"Regex": ...}.
Result<Pattern> read_pattern(FileFields& fields, const char* key) {
  const std::string path = fields.path_of(key);
  const Json* value = fields.find(key);
  if (value != nullptr && value->is_string()) return Pattern::literal(value->get<std::string>());
  if (value != nullptr && value->is_object() && value->size() == 1) {
    const auto entry = value->begin();
    if (entry->is_string()) {
      const auto text = entry->get<std::string>();
      if (entry.key() == "String") return Pattern::literal(text);
      if (entry.key() == "Regex") return Pattern::compile(text, path);
    }
  }
  return tokenizer_error(path, "expected a String or a Regex");
}

struct MetaspaceFields {
  std::string mark;
  PrependScheme scheme = PrependScheme::kAlways;
  bool split = true;
};
Result<MetaspaceFields> read_metaspace(FileFields& fields) {
  MetaspaceFields result;
  result.mark = fields.text("replacement", kMetaspaceMark);
  fields.ignore("str_rep");
  const std::optional<bool> old = fields.flag("add_prefix_space");
  const std::string scheme = fields.text("prepend_scheme", old == false ? "never" : "always");
  if (scheme == "first") {
    result.scheme = PrependScheme::kFirst;
  } else if (scheme == "never") {
    result.scheme = PrependScheme::kNever;
  } else if (scheme != "always") {
    fields.refuse("prepend_scheme", "expected always, first or never");
  }
  result.split = fields.flag("split", true);
  if (result.mark.empty()) fields.refuse("replacement", "is empty");
  if (Status s = fields.finish(); !s.ok()) return std::move(s).error();
  return result;
}

constexpr auto kForms = std::to_array<std::pair<std::string_view, UnicodeForm>>({
    {"NFC", UnicodeForm::kNfc},
    {"NFD", UnicodeForm::kNfd},
    {"NFKC", UnicodeForm::kNfkc},
    {"NFKD", UnicodeForm::kNfkd},
});

Status add_precompiled(FileFields& fields, TextRewriters& out) {
  const std::string path = fields.path_of("precompiled_charsmap");
  const std::optional<std::string> bytes = base64_decode(fields.text("precompiled_charsmap"));
  if (Status s = fields.finish(); !s.ok()) return s;
  if (!bytes) return tokenizer_error(path, "expected base64");
  ASSIGN_OR_RETURN(Charsmap map, Charsmap::read(*bytes, path));
  if (!map.empty()) out.push_back(make_charsmap_rewriter(std::move(map)));
  return {};
}

Status add_replace(FileFields& fields, TextRewriters& out) {
  ASSIGN_OR_RETURN(Pattern pattern, read_pattern(fields, "pattern"));
  std::string by = fields.text("content");
  if (Status s = fields.finish(); !s.ok()) return s;
  out.push_back(make_replace_rewriter(std::move(pattern), std::move(by)));
  return {};
}

/// Adds a normalizer that has at most a few simple fields; false: the type is another one.
bool add_simple_normalizer(const std::string& type, FileFields& fields, TextRewriters& out) {
  for (const auto& [name, form] : kForms) {
    if (type != name) continue;
    out.push_back(make_form_rewriter(form));
    return true;
  }
  if (type == "Lowercase") {
    out.push_back(make_lower_case_rewriter());
  } else if (type == "StripAccents") {
    out.push_back(make_accents_rewriter());
  } else if (type == "Nmt") {
    out.push_back(make_nmt_rewriter());
  } else if (type == "ByteLevel") {
    out.push_back(make_byte_letters_rewriter());
  } else if (type == "Prepend") {
    out.push_back(make_prepend_rewriter(fields.text("prepend")));
  } else if (type == "Strip") {
    const bool left = fields.flag("strip_left", true);
    out.push_back(make_strip_rewriter(left, fields.flag("strip_right", true)));
  } else if (type == "BertNormalizer") {
    BertSettings settings;
    settings.clean_text = fields.flag("clean_text", true);
    settings.split_chinese = fields.flag("handle_chinese_chars", true);
    settings.lower_case = fields.flag("lowercase", true);
    settings.strip_accents = fields.flag("strip_accents", settings.lower_case);
    add_bert_rewriters(settings, out);
  } else {
    return false;
  }
  return true;
}

Status add_byte_level(FileFields& fields, PreTokenizerParts& out) {
  if (fields.flag("add_prefix_space", true)) out.cutters.push_back(make_blank_prepender());
  fields.ignore("trim_offsets");
  if (fields.flag("use_regex", true)) {
    ASSIGN_OR_RETURN(Pattern pattern, Pattern::compile(gpt2_pattern(), "ByteLevel"));
    out.cutters.push_back(make_pattern_cutter(std::move(pattern), CutBehavior::kIsolated, false));
  }
  out.byte_letters = true;
  return fields.finish();
}

Status add_split(FileFields& fields, PreTokenizerParts& out) {
  ASSIGN_OR_RETURN(Pattern pattern, read_pattern(fields, "pattern"));
  const std::optional<CutBehavior> behavior = find_cut_behavior(fields.text("behavior"));
  if (!behavior) {
    fields.refuse("behavior",
                  "expected Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
  }
  const bool invert = fields.flag("invert", false);
  if (Status s = fields.finish(); !s.ok()) return s;
  out.cutters.push_back(make_pattern_cutter(std::move(pattern), *behavior, invert));
  return {};
}

Status add_words(FileFields& fields, PreTokenizerParts& out) {
  if (Status s = fields.finish(); !s.ok()) return s;
  out.cutters.push_back(make_class_cutter(is_white_space, CutBehavior::kRemoved));
  out.cutters.push_back(make_class_cutter(is_unicode_word, CutBehavior::kContiguous));
  return {};
}

Status add_punctuation(FileFields& fields, PreTokenizerParts& out) {
  const std::optional<CutBehavior> behavior =
      find_cut_behavior(fields.text("behavior", "Isolated"));
  if (!behavior) {
    fields.refuse("behavior",
                  "expected Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
    return fields.finish();
  }
  out.cutters.push_back(make_class_cutter(is_any_punctuation, *behavior));
  return fields.finish();
}

Status add_delimiter(FileFields& fields, PreTokenizerParts& out) {
  const std::string delimiter = fields.text("delimiter");
  std::string_view rest = delimiter;
  if (rest.empty() || !is_utf8(rest)) {
    fields.refuse("delimiter", "expected one character");
    return fields.finish();
  }
  const char32_t c = take_code_point(rest);
  if (!rest.empty()) fields.refuse("delimiter", "expected one character");
  out.cutters.push_back(make_character_cutter(c));
  return fields.finish();
}

/// Adds the tokens of BERT and RoBERTa: `cls` before and `sep` after the text.
Status add_bert_affixes(FileFields& fields, std::vector<int32_t>& prefix,
                        std::vector<int32_t>& suffix) {
  const auto read = [&](const char* key, std::vector<int32_t>& out) {
    const Json* value = fields.find(key);
    if (value != nullptr && value->is_array() && value->size() == 2 &&
        (*value)[1].is_number_unsigned() &&
        (*value)[1].get<uint64_t>() < static_cast<uint64_t>(TokenNames::kTokensMax)) {
      out.push_back((*value)[1].get<int32_t>());
    } else {
      fields.refuse(key, "expected a token and its id");
    }
  };
  read("cls", prefix);
  read("sep", suffix);
  fields.ignore("trim_offsets");
  fields.ignore("add_prefix_space");
  return fields.finish();
}

/// Reads the ids of a template's special token.
Result<std::vector<int32_t>> read_special_ids(const Json* specials, const std::string& name,
                                              const std::string& path) {
  std::vector<int32_t> ids;
  const auto fail = [&] {
    return tokenizer_error(path, "the ids of " + quoted_value(name) + " are missing");
  };
  if (specials == nullptr || !specials->is_object() || !specials->contains(name)) return fail();
  const Json& special = (*specials)[name];
  if (!special.is_object() || !special.contains("ids") || !special["ids"].is_array()) return fail();
  for (const Json& id : special["ids"]) {
    if (!id.is_number_unsigned() ||
        id.get<uint64_t>() >= static_cast<uint64_t>(TokenNames::kTokensMax)) {
      return fail();
    }
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

Status add_template(FileFields& fields, const std::string& path, std::vector<int32_t>& prefix,
                    std::vector<int32_t>& suffix) {
  fields.ignore("pair");
  const Json* single = fields.find("single");
  const Json* specials = fields.find("special_tokens");
  if (single == nullptr || !single->is_array()) {
    fields.refuse("single", "expected a list");
    return fields.finish();
  }
  bool text_seen = false;
  std::vector<int32_t> before;
  std::vector<int32_t> after;
  for (const Json& part : *single) {
    if (part.is_object() && part.contains("Sequence") && !text_seen) {
      text_seen = true;
    } else if (part.is_object() && part.contains("SpecialToken") &&
               part["SpecialToken"].is_object() && part["SpecialToken"].contains("id") &&
               part["SpecialToken"]["id"].is_string()) {
      const auto name = part["SpecialToken"]["id"].get<std::string>();
      ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                       read_special_ids(specials, name, path + ".special_tokens"));
      auto& out = text_seen ? after : before;
      out.insert(out.end(), ids.begin(), ids.end());
    } else {
      fields.refuse("single", "expected special tokens and one text");
      return fields.finish();
    }
  }
  prefix.insert(prefix.begin(), before.begin(), before.end());
  suffix.insert(suffix.end(), after.begin(), after.end());
  return fields.finish();
}

}  // namespace

Status add_normalizers(const Json& part, const std::string& path, int depth, TextRewriters& out) {
  if (part.is_null()) return {};
  FileFields fields(part, path);
  const std::string type = fields.text("type");
  if (type == "Sequence") {
    return add_sequence(fields, "normalizers", path, depth, [&](const Json& p, const auto& at) {
      return add_normalizers(p, at, depth + 1, out);
    });
  }
  if (type == "Replace") return add_replace(fields, out);
  if (type == "Precompiled") return add_precompiled(fields, out);
  if (add_simple_normalizer(type, fields, out)) return fields.finish();
  if (Status s = fields.finish(); type.empty() && !s.ok()) return s;
  return unknown_type(path, type,
                      "NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Strip, Replace, Prepend, "
                      "Precompiled, Nmt, ByteLevel, BertNormalizer or Sequence");
}

Status add_pre_tokenizers(const Json& part, const std::string& path, int depth,
                          PreTokenizerParts& out) {
  if (part.is_null()) return {};
  FileFields fields(part, path);
  const std::string type = fields.text("type");
  if (type == "Sequence") {
    return add_sequence(fields, "pretokenizers", path, depth, [&](const Json& p, const auto& at) {
      return add_pre_tokenizers(p, at, depth + 1, out);
    });
  }
  if (out.byte_letters) {  // not the last part: what follows sees letters
    out.cutters.push_back(make_byte_letters_rewriter());
    out.byte_letters = false;
  }
  if (type == "ByteLevel") return add_byte_level(fields, out);
  if (type == "Split") return add_split(fields, out);
  if (type == "Whitespace") return add_words(fields, out);
  if (type == "Punctuation") return add_punctuation(fields, out);
  if (type == "CharDelimiterSplit") return add_delimiter(fields, out);
  if (type == "Metaspace") {
    ASSIGN_OR_RETURN(MetaspaceFields metaspace, read_metaspace(fields));
    out.cutters.push_back(
        make_metaspace(std::move(metaspace.mark), metaspace.scheme, metaspace.split));
    return {};
  }
  if (type == "Digits") {
    const bool individual = fields.flag("individual_digits", false);
    out.cutters.push_back(make_class_cutter(
        is_numeric, individual ? CutBehavior::kIsolated : CutBehavior::kContiguous));
    return fields.finish();
  }
  if (type == "WhitespaceSplit" || type == "BertPreTokenizer") {
    out.cutters.push_back(make_class_cutter(is_white_space, CutBehavior::kRemoved));
    if (type == "BertPreTokenizer") {
      out.cutters.push_back(make_class_cutter(is_any_punctuation, CutBehavior::kIsolated));
    }
    return fields.finish();
  }
  if (Status s = fields.finish(); type.empty() && !s.ok()) return s;
  return unknown_type(path, type,
                      "ByteLevel, Split, Whitespace, WhitespaceSplit, Punctuation, Digits, "
                      "Metaspace, CharDelimiterSplit, BertPreTokenizer or Sequence");
}

Status add_decoders(const Json& part, const std::string& path, int depth, DecoderSteps& out) {
  if (part.is_null()) return {};
  FileFields fields(part, path);
  const std::string type = fields.text("type");
  if (type == "Sequence") {
    return add_sequence(fields, "decoders", path, depth, [&](const Json& p, const auto& at) {
      return add_decoders(p, at, depth + 1, out);
    });
  }
  if (type == "ByteLevel") {
    for (const char* key : {"add_prefix_space", "trim_offsets", "use_regex"}) fields.ignore(key);
    out.push_back(make_byte_letters_decoder());
  } else if (type == "ByteFallback") {
    out.push_back(make_byte_token_decoder());
  } else if (type == "Fuse") {
    out.push_back(make_fuse_decoder());
  } else if (type == "Metaspace") {
    ASSIGN_OR_RETURN(MetaspaceFields metaspace, read_metaspace(fields));
    out.push_back(make_metaspace_decoder(std::move(metaspace.mark),
                                         metaspace.scheme != PrependScheme::kNever));
    return {};
  } else if (type == "Replace") {
    ASSIGN_OR_RETURN(Pattern pattern, read_pattern(fields, "pattern"));
    out.push_back(make_replace_decoder(std::move(pattern), fields.text("content")));
  } else if (type == "Strip") {
    std::string content = fields.text("content", " ");
    if (content.empty()) fields.refuse("content", "is empty");
    const auto start = static_cast<size_t>(fields.integer("start", 0, 0, 1 << 20));
    const auto stop = static_cast<size_t>(fields.integer("stop", 0, 0, 1 << 20));
    out.push_back(make_strip_decoder(std::move(content), start, stop));
  } else if (type == "WordPiece") {
    std::string prefix = fields.text("prefix", "##");
    out.push_back(make_word_piece_decoder(std::move(prefix), fields.flag("cleanup", true)));
  } else if (type == "BPEDecoder") {
    out.push_back(make_end_suffix_decoder(fields.text("suffix", "</w>")));
  } else {
    if (Status s = fields.finish(); type.empty() && !s.ok()) return s;
    return unknown_type(path, type,
                        "ByteLevel, ByteFallback, Fuse, Metaspace, Replace, Strip, WordPiece, "
                        "BPEDecoder or Sequence");
  }
  return fields.finish();
}

Status add_affixes(const Json& part, const std::string& path, int depth,
                   std::vector<int32_t>& prefix, std::vector<int32_t>& suffix) {
  if (part.is_null()) return {};
  FileFields fields(part, path);
  const std::string type = fields.text("type");
  if (type == "Sequence") {
    return add_sequence(fields, "processors", path, depth, [&](const Json& p, const auto& at) {
      return add_affixes(p, at, depth + 1, prefix, suffix);
    });
  }
  if (type == "TemplateProcessing") return add_template(fields, path, prefix, suffix);
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    return add_bert_affixes(fields, prefix, suffix);
  }
  if (type == "ByteLevel") {  // only changes where tokens are said to be in the text
    for (const char* key : {"add_prefix_space", "trim_offsets", "use_regex"}) fields.ignore(key);
    return fields.finish();
  }
  if (Status s = fields.finish(); type.empty() && !s.ok()) return s;
  return unknown_type(path, type,
                      "TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel or "
                      "Sequence");
}

}  // namespace trainyard
