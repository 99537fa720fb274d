#include "src/data/tokenizers/file_fields.h"

#include <nlohmann/json.hpp>

#include "src/base/text.h"
#include "src/data/tokenizers/added_tokens.h"
#include "src/data/tokenizers/token_model.h"

namespace trainyard {

FileFields::FileFields(const nlohmann::json& object, std::string path)
    : object_(object), path_(std::move(path)) {
  if (!object_.is_object()) error_ = tokenizer_error(path_, "expected an object");
}

void FileFields::refuse(const char* key, const std::string& what) {
  if (!error_) error_ = tokenizer_error(path_of(key), what);
}

const nlohmann::json* FileFields::find(const char* key) {
  if (error_) return nullptr;
  read_.insert(key);
  const auto it = object_.find(key);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

std::string FileFields::text(const char* key, std::string_view absent) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::string(absent);
  if (value->is_string()) return value->get<std::string>();
  refuse(key, "expected text");
  return std::string(absent);
}

bool FileFields::flag(const char* key, bool absent) { return flag(key).value_or(absent); }

std::optional<bool> FileFields::flag(const char* key) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_boolean()) return value->get<bool>();
  refuse(key, "expected true or false");
  return std::nullopt;
}

int64_t FileFields::integer(const char* key, int64_t absent, int64_t min, int64_t max) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return absent;
  if (value->is_number_integer()) {
    const bool large =
        value->is_number_unsigned() && value->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX);
    const int64_t number = large ? INT64_MAX : value->get<int64_t>();
    if (!large && number >= min && number <= max) return number;
  }
  refuse(key, "expected a whole number from " + std::to_string(min) + " to " + std::to_string(max));
  return absent;
}

Status FileFields::finish() {
  if (error_) return *error_;
  if (ignores_rest_) return {};
  for (const auto& item : object_.items()) {
    if (!read_.contains(item.key())) {
      return tokenizer_error(path_, "the field " + quoted_value(item.key()) + " is not known");
    }
  }
  return {};
}

AddedToken read_added_token(FileFields& fields) {
  AddedToken token;
  token.content = fields.text("content");
  token.special = fields.flag("special", false);
  token.normalized = fields.flag("normalized", !token.special);
  token.single_word = fields.flag("single_word", false);
  token.strip_left = fields.flag("lstrip", false);
  token.strip_right = fields.flag("rstrip", false);
  return token;
}

}  // namespace trainyard
