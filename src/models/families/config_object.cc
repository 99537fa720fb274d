#include "src/models/families/config_object.h"

#include <cmath>

#include "src/base/glob.h"
#include "src/base/text.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;

bool turns_off(const Json& value) {
  if (value.is_null() || value == false) return true;
  if (value.is_number()) return value.get<double>() == 0;
  if (value.is_string()) return value.get_ref<const std::string&>().empty();
  return value.is_structured() && value.empty();
}

}  // namespace

std::string shown_value(const Json& value) {
  constexpr size_t kShown = 48;
  std::string text = value.is_string() ? quoted_value(value.get_ref<const std::string&>())
                                       : value.dump(-1, ' ', /*ensure_ascii=*/true,
                                                    Json::error_handler_t::replace);
  if (text.size() > kShown) text = text.substr(0, kShown) + "...";
  return text;
}

const Json* ConfigObject::find(std::string_view key) {
  read_.emplace(key);
  const auto it = object_.find(key);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

void ConfigObject::refuse(std::string_view key, const std::string& what) {
  problems_.add("MODEL_UNSUPPORTED", path_ + std::string(key), what);
}

void ConfigObject::refuse_type(std::string_view key, std::string_view expected) {
  const auto it = object_.find(key);
  const bool absent = it == object_.end() || it->is_null();
  problems_.add(
      "MODEL_FILE_INVALID", path_ + std::string(key),
      (absent ? "is missing" : "is " + shown_value(*it)) + ", expected " + std::string(expected));
}

int64_t ConfigObject::integer(std::string_view key, int64_t min, int64_t max,
                              std::optional<int64_t> fallback) {
  const Json* value = find(key);
  if (value == nullptr && fallback) return *fallback;
  if (value != nullptr && value->is_number_integer()) {
    // An unsigned number above the range of int64_t would wrap around.
    const bool huge = value->is_number_unsigned() && value->get<uint64_t>() > uint64_t{1} << 62;
    const int64_t number = huge ? max : value->get<int64_t>();
    if (!huge && number >= min && number <= max) return number;
  }
  refuse_type(key, "a whole number from " + std::to_string(min) + " to " + std::to_string(max));
  return fallback.value_or(min);
}

double ConfigObject::positive(std::string_view key, std::optional<double> fallback) {
  const Json* value = find(key);
  if (value == nullptr && fallback) return *fallback;
  if (value != nullptr && value->is_number()) {
    const double number = value->get<double>();
    if (std::isfinite(number) && number > 0) return number;
  }
  refuse_type(key, "a number above 0");
  return fallback.value_or(1);
}

double ConfigObject::real(std::string_view key, double fallback) {
  const Json* value = find(key);
  if (value == nullptr) return fallback;
  if (value->is_number() && std::isfinite(value->get<double>())) return value->get<double>();
  refuse_type(key, "a number");
  return fallback;
}

bool ConfigObject::flag(std::string_view key, bool fallback) {
  const Json* value = find(key);
  if (value == nullptr) return fallback;
  if (value->is_boolean()) return value->get<bool>();
  refuse_type(key, "true or false");
  return fallback;
}

std::string ConfigObject::text(std::string_view key, std::string_view fallback) {
  const Json* value = find(key);
  if (value == nullptr) return std::string(fallback);
  if (value->is_string()) return value->get<std::string>();
  refuse_type(key, "a text");
  return std::string(fallback);
}

std::vector<int64_t> ConfigObject::integers(std::string_view key, int64_t min, int64_t max) {
  const Json* value = find(key);
  std::vector<int64_t> list;
  if (value == nullptr) return list;
  const auto refuse_list = [&] {
    refuse_type(
        key, "a list of whole numbers from " + std::to_string(min) + " to " + std::to_string(max));
    return std::vector<int64_t>();
  };
  if (!value->is_array()) return refuse_list();
  for (const Json& item : *value) {
    if (!item.is_number_integer()) return refuse_list();
    const auto number = item.get<int64_t>();
    if (number < min || number > max) return refuse_list();
    list.push_back(number);
  }
  return list;
}

std::vector<std::string> ConfigObject::texts(std::string_view key) {
  const Json* value = find(key);
  std::vector<std::string> list;
  if (value == nullptr) return list;
  if (!value->is_array()) {
    refuse_type(key, "a list of texts");
    return list;
  }
  for (const Json& item : *value) {
    if (!item.is_string()) {
      refuse_type(key, "a list of texts");
      return {};
    }
    list.push_back(item.get<std::string>());
  }
  return list;
}

void ConfigObject::expect_flag(std::string_view key, bool only) {
  if (flag(key, only) != only) {
    refuse(key, std::string("is ") + (only ? "false" : "true") + ", which is not supported");
  }
}

void ConfigObject::ignore(std::string_view pattern) {
  for (const auto& [key, value] : object_.items()) {
    if (glob_match(pattern, key)) read_.insert(key);
  }
}

void ConfigObject::refuse_unread(const std::string& why) {
  for (const auto& [key, value] : object_.items()) {
    if (read_.contains(key) || turns_off(value)) continue;
    refuse(quoted_value(key) == "'" + key + "'" ? key : quoted_value(key),
           "is " + shown_value(value) + "; " + why);
  }
}

}  // namespace trainyard
