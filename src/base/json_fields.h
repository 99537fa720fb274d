// src/base/json_fields.h: reads the fields of a JSON object in one of our own files strictly: every
// field must exist and have its type, and the object must have no other field.
//
//   JsonFields fields(object, "schema", "DATASET_INVALID");
//   schema.train_rows = fields.integer("train_rows", 0, kRowsMax);
//   if (Status s = fields.finish(); !s.ok()) return std::move(s).error();
//
// After the first error all reads return empty values, so that callers check only finish().
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.h"

namespace trainyard {

/// Parses a whole text as one JSON value. `what` names the text in messages. Refusal:
/// INVALID_ARGUMENT/`reason`.
Result<nlohmann::json> parse_json(std::string_view text, const std::string& what,
                                  const std::string& reason);

class JsonFields {
 public:
  /// Borrows `object`. `what` is its name in messages.
  JsonFields(const nlohmann::json& object, std::string what, std::string reason);

  /// Returns true if an optional field exists.
  bool has(const char* key) const;
  int64_t integer(const char* key, int64_t min, int64_t max);
  uint64_t unsigned_integer(const char* key);
  double number(const char* key);  // refuses infinite numbers and NaN
  bool boolean(const char* key);
  std::string text(const char* key);
  std::vector<std::string> texts(const char* key);
  std::vector<double> numbers(const char* key);    // refuses infinite numbers and NaN
  std::vector<int64_t> integers(const char* key);  // refuses negative numbers
  /// Returns a field of any type, which the caller reads; a JSON null after an error.
  const nlohmann::json& child(const char* key);

  /// Records an error that the caller found, if it is the first one.
  void refuse(const std::string& message);
  /// Returns the first error. A field of the object that was not read is also an error.
  Status finish();

 private:
  const nlohmann::json* find(const char* key);
  void refuse_type(const char* key, const char* expected);

  const nlohmann::json& object_;
  std::string what_;
  std::string reason_;
  std::set<std::string, std::less<>> read_;
  std::optional<Error> error_;
};

}  // namespace trainyard
