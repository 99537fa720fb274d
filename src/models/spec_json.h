// src/models/spec_json.h: writes structs of settings as JSON, using their visit_fields()
// (src/base/fields.h).
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <variant>
#include <vector>

#include "src/base/fields.h"
#include "src/models/model_spec.h"

namespace trainyard {

template <typename Spec>
nlohmann::json fields_to_json(const Spec& spec);

inline nlohmann::json value_to_json(const Attributes& attributes) {
  nlohmann::json json = nlohmann::json::object();
  for (const auto& [name, value] : attributes.items()) {
    std::visit([&json, &key = name](const auto& v) { json[key] = v; }, value);
  }
  return json;
}

/// A loss without attributes is written as its name alone, as in older files.
inline nlohmann::json value_to_json(const LossSpec& loss) {
  if (loss.attributes.items().empty()) return loss.op;
  return fields_to_json(loss);
}

template <typename T>
nlohmann::json value_to_json(const T& value) {
  if constexpr (HasFields<T>) {
    return fields_to_json(value);
  } else if constexpr (requires { name_of(value); }) {  // for an enum
    return name_of(value);
  } else if constexpr (std::same_as<T, char>) {
    return std::string(1, value);
  } else {
    return value;
  }
}

template <typename T>
nlohmann::json value_to_json(const std::vector<T>& list) {
  nlohmann::json json = nlohmann::json::array();
  for (const T& item : list) json.push_back(value_to_json(item));
  return json;
}

inline bool is_empty(const nlohmann::json& json) {
  return json.is_string() ? json.get_ref<const std::string&>().empty() : json.empty();
}

/// Writes an object with all fields but optional ones that are not set.
template <typename Spec>
nlohmann::json fields_to_json(const Spec& spec) {
  nlohmann::json object = nlohmann::json::object();
  const auto write = [&object]<typename T>(std::string_view name, const T& value,
                                           Written written = Written::kAlways) {
    nlohmann::json json;
    if constexpr (requires { value.has_value(); }) {
      if (!value.has_value()) return;
      json = value_to_json(*value);
    } else {
      json = value_to_json(value);
    }
    if (written == Written::kUnlessEmpty && is_empty(json)) return;
    object[std::string(name)] = std::move(json);
  };
  visit_fields(spec, write);
  return object;
}

}  // namespace trainyard
