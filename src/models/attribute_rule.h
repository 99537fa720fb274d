// src/models/attribute_rule.h: describes the values that an attribute of a layer, or a parameter of
// a preset, may have. The same description checks values and tells the user what is accepted.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/violations.h"
#include "src/graph/attributes.h"

namespace trainyard {

struct AttributeRule {
  enum class Kind : uint8_t {
    kInt,
    kFloat,  // also accepts an integer
    kBool,   // an integer attribute, 0 or 1
    kText,
    kDims,          // a list of integers; a single integer counts as a list of one
    kNumbers,       // a list of numbers, or one of `choices`
    kNamedNumbers,  // a list of numbers, numbers by name, or one of `choices`
    kWidths,        // an integer for all names, integers by name, or one of `choices`
  } kind = Kind::kInt;
  std::string_view name;
  bool required = false;
  double min = 0, max = 0;       // bounds of the number, or of each entry of a list
  bool max_excluded = false;     // the range is [min, max)
  bool min_excluded = false;     // the range is (min, max]
  std::vector<int64_t> lengths;  // accepted lengths of a list; empty: count_min to count_max
  int64_t count_min = 1, count_max = 8;
  std::vector<std::string_view> choices;  // accepted texts; if empty, kText accepts any text
};

// Functions that construct common rules. Bounds are inclusive unless stated otherwise.
AttributeRule integer_rule(std::string_view name, bool required, double min, double max);
AttributeRule boolean_rule(std::string_view name);
AttributeRule choice_rule(std::string_view name, std::vector<std::string_view> choices);
AttributeRule text_rule(std::string_view name);  // any text
AttributeRule dims_rule(std::string_view name, bool required, double min, double max,
                        std::vector<int64_t> lengths = {});
struct RealBounds {
  double min = 0, max = 1;
  bool min_excluded = false, max_excluded = false;
};
AttributeRule real_rule(std::string_view name, bool required, RealBounds bounds);

/// Checks attributes against their rules. Problems are added to `violations` under
/// "<path>.<attribute>", with messages that begin "<where>: <attribute>".
void check_attributes(const std::vector<AttributeRule>& rules, const Attributes& attributes,
                      const std::string& path, const std::string& where, Violations& violations);

/// Reads a list attribute that may be given as a single number: `count` copies of that number, or
/// the list itself, or `fallback` if the attribute is absent.
std::vector<int64_t> spell_out(const Attributes& attributes, std::string_view name, size_t count,
                               std::vector<int64_t> fallback);

}  // namespace trainyard
