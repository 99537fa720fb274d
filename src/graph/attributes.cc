#include "src/graph/attributes.h"

#include <charconv>

#include "src/base/check.h"

namespace trainyard {
namespace {

/// Returns the shortest text that reads back as the same number, so that dumps lose no digits and
/// show no rounding noise.
std::string text_of(double value) {
  char buffer[32];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value);
  return error == std::errc() ? std::string(buffer, end) : "?";
}

std::string list_of(const auto& values, const auto& entry_text) {
  std::string text = "[";
  for (const auto& value : values) text += (text.size() > 1 ? ", " : "") + entry_text(value);
  return text + "]";
}

std::string text_of(const Attribute& value) {
  if (const auto* i = std::get_if<int64_t>(&value)) return std::to_string(*i);
  if (const auto* d = std::get_if<double>(&value)) return text_of(*d);
  if (const auto* s = std::get_if<std::string>(&value)) return '"' + *s + '"';
  if (const auto* numbers = std::get_if<std::vector<double>>(&value)) {
    return list_of(*numbers, [](double v) { return text_of(v); });
  }
  if (const auto* named = std::get_if<NamedNumbers>(&value)) {
    return list_of(*named,
                   [](const auto& v) { return '"' + v.first + "\": " + text_of(v.second); });
  }
  if (const auto* named = std::get_if<NamedInts>(&value)) {
    return list_of(*named,
                   [](const auto& v) { return '"' + v.first + "\": " + std::to_string(v.second); });
  }
  return list_of(std::get<std::vector<int64_t>>(value),
                 [](int64_t v) { return std::to_string(v); });
}

template <typename T>
const T& typed(std::string_view name, const Attribute& value, const char* type) {
  const T* typed_value = std::get_if<T>(&value);
  TRAINYARD_CHECK(typed_value != nullptr, "attribute " + std::string(name) + " is " +
                                              text_of(value) + ", expected " + type);
  return *typed_value;
}

}  // namespace

const Attribute* Attributes::find(std::string_view name) const {
  const auto it = items_.find(name);
  return it == items_.end() ? nullptr : &it->second;
}

int64_t Attributes::get_int(std::string_view name, int64_t fallback) const {
  const Attribute* value = find(name);
  return value == nullptr ? fallback : typed<int64_t>(name, *value, "an integer");
}

double Attributes::get_float(std::string_view name, double fallback) const {
  const Attribute* value = find(name);
  if (value == nullptr) return fallback;
  if (const auto* i = std::get_if<int64_t>(value)) return static_cast<double>(*i);
  return typed<double>(name, *value, "a number");
}

std::string Attributes::get_string(std::string_view name, std::string_view fallback) const {
  const Attribute* value = find(name);
  return value == nullptr ? std::string(fallback) : typed<std::string>(name, *value, "a string");
}

std::vector<int64_t> Attributes::get_ints(std::string_view name,
                                          std::vector<int64_t> fallback) const {
  const Attribute* value = find(name);
  return value == nullptr ? fallback
                          : typed<std::vector<int64_t>>(name, *value, "a list of integers");
}

std::vector<double> Attributes::get_floats(std::string_view name,
                                           std::vector<double> fallback) const {
  const Attribute* value = find(name);
  if (value == nullptr) return fallback;
  if (const auto* integers = std::get_if<std::vector<int64_t>>(value)) {
    return {integers->begin(), integers->end()};
  }
  return typed<std::vector<double>>(name, *value, "a list of numbers");
}

std::string Attributes::to_string() const {
  std::string text = "{";
  for (const auto& [name, value] : items_) {
    if (text.size() > 1) text += ", ";
    text += name + "=" + text_of(value);
  }
  return text + "}";
}

}  // namespace trainyard
