#include "src/data/tokenizers/tokenizer_settings.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "src/base/json_fields.h"
#include "src/base/text.h"
#include "src/data/tokenizers/file_fields.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;

/// Reads "token" or {"content": "token", ...}.
std::string read_token(FileFields& fields, const char* key) {
  const Json* value = fields.find(key);
  if (value == nullptr) return {};
  if (value->is_string()) return value->get<std::string>();
  if (value->is_object() && value->contains("content") && (*value)["content"].is_string()) {
    return (*value)["content"].get<std::string>();
  }
  fields.refuse(key, "expected a token");
  return {};
}

void read_tokens(FileFields& fields, TokenizerSettings& out) {
  const auto read = [&](const char* key, std::string& token) {
    std::string found = read_token(fields, key);
    if (token.empty()) token = std::move(found);
  };
  read("bos_token", out.begin);
  read("eos_token", out.end);
  read("unk_token", out.unknown);
  read("pad_token", out.padding);
}

/// Reads a template, or of a list of templates that with the name "default", else the first one.
std::string read_template(FileFields& fields) {
  const Json* value = fields.find("chat_template");
  if (value == nullptr) return {};
  if (value->is_string()) return value->get<std::string>();
  std::string first;
  if (value->is_array()) {
    for (const Json& entry : *value) {
      if (!entry.is_object() || !entry.contains("template") || !entry["template"].is_string()) {
        continue;
      }
      if (entry.value("name", Json()) == "default") return entry["template"].get<std::string>();
      if (first.empty()) first = entry["template"].get<std::string>();
    }
  }
  if (first.empty()) fields.refuse("chat_template", "expected text or a list of templates");
  return first;
}

std::optional<int32_t> read_id(std::string_view text) {
  int32_t id = -1;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (code != std::errc() || end != text.data() + text.size() || id < 0 ||
      id >= TokenNames::kTokensMax) {
    return std::nullopt;
  }
  return id;
}

/// Reads {"2": {"content": "</s>", ...}, ...}.
Status read_added_decoder(const Json& tokens, const std::string& path, TokenizerSettings& out) {
  if (!tokens.is_object()) return tokenizer_error(path, "expected an object");
  for (const auto& item : tokens.items()) {
    const std::optional<int32_t> id = read_id(item.key());
    if (!id) return tokenizer_error(path, quoted_value(item.key()) + " is not an id");
    FileFields fields(item.value(), path + "." + item.key());
    AddedToken token = read_added_token(fields);
    if (Status s = fields.finish(); !s.ok()) return s;
    token.id = *id;
    out.added.push_back(std::move(token));
  }
  return {};
}

/// Reads {"<tool_call>": 151657, ...}.
Status read_added_file(const Json& tokens, const std::string& file, TokenizerSettings& out) {
  if (!tokens.is_object()) return tokenizer_error(file, "expected an object");
  for (const auto& item : tokens.items()) {
    if (!item.value().is_number_unsigned() ||
        item.value().get<uint64_t>() >= static_cast<uint64_t>(TokenNames::kTokensMax)) {
      return tokenizer_error(file, "the id of " + quoted_value(item.key()) + " is not an id");
    }
    const auto id = item.value().get<int32_t>();
    const auto has_id = [&](const AddedToken& token) { return token.id == id; };
    if (std::ranges::any_of(out.added, has_id)) continue;
    AddedToken token;
    token.content = item.key();
    token.id = id;
    out.added.push_back(std::move(token));
  }
  return {};
}

Status read_config(const Json& json, const std::string& file, TokenizerSettings& out) {
  FileFields fields(json, file);
  read_tokens(fields, out);
  out.add_begin = fields.flag("add_bos_token");
  out.add_end = fields.flag("add_eos_token");
  if (out.chat_template.empty()) out.chat_template = read_template(fields);
  const Json* added = fields.find("added_tokens_decoder");
  fields.ignore_rest();
  if (Status s = fields.finish(); !s.ok()) return s;
  return added == nullptr ? Status()
                          : read_added_decoder(*added, file + ".added_tokens_decoder", out);
}

Status read_stop_ids(const Json& json, const std::string& file, TokenizerSettings& out) {
  FileFields fields(json, file);
  const Json* ids = fields.find("eos_token_id");
  fields.ignore_rest();
  if (Status s = fields.finish(); !s.ok() || ids == nullptr) return s;
  const Json list = ids->is_array() ? *ids : Json::array({*ids});
  for (const Json& id : list) {
    if (!id.is_number_unsigned() ||
        id.get<uint64_t>() >= static_cast<uint64_t>(TokenNames::kTokensMax)) {
      return tokenizer_error(fields.path_of("eos_token_id"), "expected ids of tokens");
    }
    out.stop_ids.push_back(id.get<int32_t>());
  }
  return {};
}

using ReadJson = Status (*)(const Json& json, const std::string& file, TokenizerSettings& out);
Status read_file(const TokenizerFiles& files, const std::string& name, ReadJson read,
                 TokenizerSettings& out) {
  const auto it = files.find(name);
  if (it == files.end()) return {};
  ASSIGN_OR_RETURN(const Json json, parse_json(it->second, name, "TOKENIZER_INVALID"));
  return read(json, name, out);
}

}  // namespace

Result<TokenizerSettings> read_tokenizer_settings(const TokenizerFiles& files) {
  TokenizerSettings out;
  const auto jinja = files.find("chat_template.jinja");
  if (jinja != files.end()) out.chat_template = jinja->second;
  Status s = read_file(files, "tokenizer_config.json", read_config, out);
  const ReadJson read_map = [](const Json& json, const std::string& file, TokenizerSettings& o) {
    FileFields fields(json, file);
    read_tokens(fields, o);
    fields.ignore_rest();
    return fields.finish();
  };
  const ReadJson read_chat = [](const Json& json, const std::string& file, TokenizerSettings& o) {
    FileFields fields(json, file);
    if (o.chat_template.empty()) o.chat_template = read_template(fields);
    fields.ignore_rest();
    return fields.finish();
  };
  if (s.ok()) s = read_file(files, "special_tokens_map.json", read_map, out);
  if (s.ok()) s = read_file(files, "chat_template.json", read_chat, out);
  if (s.ok()) s = read_file(files, "added_tokens.json", read_added_file, out);
  if (s.ok()) s = read_file(files, "generation_config.json", read_stop_ids, out);
  if (!s.ok()) return std::move(s).error();
  std::ranges::sort(out.added, {}, &AddedToken::id);
  return out;
}

}  // namespace trainyard
