// src/graph/attributes.h: a node's attributes by ONNX name, sorted so that dumps are stable.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace trainyard {

using NamedInts = std::map<std::string, int64_t, std::less<>>;
using NamedNumbers = std::map<std::string, double, std::less<>>;
using Attribute = std::variant<int64_t, double, std::string, std::vector<int64_t>,
                               std::vector<double>, NamedInts, NamedNumbers>;

class Attributes {
 public:
  Attributes() = default;
  Attributes(std::initializer_list<std::pair<const std::string, Attribute>> items)
      : items_(items) {}

  void set(std::string name, Attribute value) { items_[std::move(name)] = std::move(value); }
  const Attribute* find(std::string_view name) const;

  /// Returns the value, or `fallback` if the attribute is absent. A value of another type is a
  /// fault: src/models checks the types of user input before it creates a node.
  int64_t get_int(std::string_view name, int64_t fallback) const;
  // Also accepts an integer value.
  double get_float(std::string_view name, double fallback) const;
  std::string get_string(std::string_view name, std::string_view fallback) const;
  std::vector<int64_t> get_ints(std::string_view name, std::vector<int64_t> fallback) const;
  std::vector<double> get_floats(std::string_view name, std::vector<double> fallback) const;

  const std::map<std::string, Attribute, std::less<>>& items() const { return items_; }
  std::string to_string() const;  // {kernel_shape=[5, 5], strides=[1, 1]}
  bool operator==(const Attributes&) const = default;

 private:
  std::map<std::string, Attribute, std::less<>> items_;
};

}  // namespace trainyard
