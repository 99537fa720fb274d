// src/models/attribute_rule.h: what an attribute of a layer or a parameter of a preset may say: one
// description that checks it, and that names what would have been accepted.
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
    kFloat,  // takes an integer too
    kBool,   // an integer attribute, 0 or 1
    kText,
    kDims,     // a list of integers; one integer stands for a list of one
    kNumbers,  // a list of numbers, or one of the choices
    kWidths,   // one integer for all, integers by name, or one of the choices
  } kind = Kind::kInt;
  std::string_view name;
  bool required = false;
  double min = 0, max = 0;       // of the number, or of each entry
  bool max_excluded = false;     // [min, max)
  bool min_excluded = false;     // (min, max]
  std::vector<int64_t> lengths;  // of lists: how many entries are accepted; empty: as below
  int64_t count_min = 1, count_max = 8;
  std::vector<std::string_view> choices;  // texts; none: any text where the kind is kText
};

// Rules, spelt shortly. Bounds are inclusive unless said otherwise.
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

/// Checks attributes against their rules; problems go to `violations` under "<path>.<attribute>",
/// named "<where>: <attribute>".
void check_attributes(const std::vector<AttributeRule>& rules, const Attributes& attributes,
                      const std::string& path, const std::string& where, Violations& violations);

/// A list attribute that may be given as one number: `count` entries of it, or the list as it is,
/// or `fallback` where it is absent.
std::vector<int64_t> spell_out(const Attributes& attributes, std::string_view name, size_t count,
                               std::vector<int64_t> fallback);

}  // namespace trainyard
