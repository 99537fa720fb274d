// src/models/families/config_object.h: reads an object of a config.json key by key. Problems are
// collected, so that one error names all settings that are not supported.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/violations.h"

namespace trainyard {

/// The greatest position of a token in a config.
inline constexpr int64_t kConfigPositionsMax = int64_t{1} << 30;

class ConfigObject {
 public:
  /// Borrows both. `path` stands before the keys in messages: "config.json: rope_parameters.".
  ConfigObject(const nlohmann::json& object, std::string path, Violations& problems)
      : object_(object), path_(std::move(path)), problems_(problems) {}

  /// Returns the value; null if the key is absent or its value is null.
  const nlohmann::json* find(std::string_view key);
  bool has(std::string_view key) { return find(key) != nullptr; }

  /// These return the value, or the fallback if there is none. Without a fallback the key is
  /// required. After a problem they return a value in range.
  int64_t integer(std::string_view key, int64_t min, int64_t max,
                  std::optional<int64_t> fallback = std::nullopt);
  double positive(std::string_view key, std::optional<double> fallback = std::nullopt);
  double real(std::string_view key, double fallback);
  bool flag(std::string_view key, bool fallback);
  std::string text(std::string_view key, std::string_view fallback);
  /// An empty list if there is no value.
  std::vector<int64_t> integers(std::string_view key, int64_t min, int64_t max);
  std::vector<std::string> texts(std::string_view key);

  /// Adds a problem: "is 8, expected 1".
  void refuse(std::string_view key, const std::string& what);
  /// Refuses a value other than the only one with which the model can be computed here.
  void expect_flag(std::string_view key, bool only);

  /// Marks keys, by a pattern of src/base/glob.h, that change nothing here.
  void ignore(std::string_view pattern);
  /// Refuses keys that were neither read nor ignored, unless their value turns something off: null,
  /// false, 0, or an empty text, list or object.
  void refuse_unread(const std::string& why);

 private:
  void refuse_type(std::string_view key, std::string_view expected);

  const nlohmann::json& object_;
  std::string path_;
  Violations& problems_;
  std::set<std::string, std::less<>> read_;
};

/// Returns a value as a message shows it, cut to a few words.
std::string shown_value(const nlohmann::json& value);

}  // namespace trainyard
