// src/data/tokenizers/file_fields.h: reads the fields of an object in a tokenizer's JSON file.
// Absent fields and nulls take a default; a field that nobody reads is refused by name, since it
// may change the ids.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "src/base/result.h"

namespace trainyard {

/// After the first error all reads return their defaults, so that callers check only finish().
class FileFields {
 public:
  /// Borrows `object`. `path` names it in messages: "tokenizer.json: model".
  FileFields(const nlohmann::json& object, std::string path);

  /// Returns null if the field is absent or null.
  const nlohmann::json* find(const char* key);
  std::string text(const char* key, std::string_view absent = {});
  bool flag(const char* key, bool absent);
  std::optional<bool> flag(const char* key);
  int64_t integer(const char* key, int64_t absent, int64_t min, int64_t max);
  /// Marks a field as read which changes no ids.
  void ignore(const char* key) { read_.insert(key); }
  void ignore_rest() { ignores_rest_ = true; }
  std::string path_of(const char* key) const { return path_ + "." + key; }
  void refuse(const char* key, const std::string& what);
  /// Returns the first error so far.
  Status status() const { return error_ ? Status(*error_) : Status(); }
  Status finish();

 private:
  const nlohmann::json& object_;
  std::string path_;
  std::set<std::string, std::less<>> read_;
  bool ignores_rest_ = false;
  std::optional<Error> error_;
};

struct AddedToken;
/// Reads the fields of a token that all files write alike, all but its id.
AddedToken read_added_token(FileFields& fields);

}  // namespace trainyard
