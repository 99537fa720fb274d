#include "src/models/attribute_rule.h"

#include <algorithm>
#include <cmath>

#include "src/base/text.h"

namespace trainyard {

namespace {

using Kind = AttributeRule::Kind;

std::string number_text(double v) {
  if (v == std::floor(v) && std::fabs(v) < 1e15) return std::to_string(static_cast<int64_t>(v));
  std::string text = std::to_string(v);
  text.erase(text.find_last_not_of('0') + 1);
  return text;
}

std::string range_text(const AttributeRule& rule) {
  if (!rule.min_excluded && !rule.max_excluded) {
    if (rule.min == rule.max) return number_text(rule.min);
    return number_text(rule.min) + ".." + number_text(rule.max);
  }
  return (rule.min_excluded ? "(" : "[") + number_text(rule.min) + ", " + number_text(rule.max) +
         (rule.max_excluded ? ")" : "]");
}

bool in_range(const AttributeRule& rule, double v) {
  // Comparisons with NaN are false, so NaN is out of range.
  const bool above = rule.min_excluded ? v > rule.min : v >= rule.min;
  const bool below = rule.max_excluded ? v < rule.max : v <= rule.max;
  return above && below;
}

// Returns the choices as "word or char or ", to which the caller appends what else is accepted.
std::string choices_text(const AttributeRule& rule) {
  std::string text;
  for (const std::string_view c : rule.choices) text += std::string(c) + " or ";
  return text;
}

std::string_view expected_type(Kind kind) {
  switch (kind) {
    case Kind::kInt:
      return "a whole number";
    case Kind::kFloat:
      return "a number";
    case Kind::kBool:
      return "true or false";
    case Kind::kText:
      return "text";
    case Kind::kDims:
      return "a list of whole numbers";
    case Kind::kNumbers:
      return "a list of numbers";
    case Kind::kNamedNumbers:
      return "a list of numbers, or numbers by name";
    case Kind::kWidths:
      return "a whole number or whole numbers by name";
  }
  return "?";
}

// Describes the fault of a value. An empty reason means that the value is valid.
struct Problem {
  std::string reason;
  std::string description;
  std::string name = {};  // the entry at fault, if entries have names
};

Problem type_problem(const AttributeRule& rule) {
  return {"FIELD_TYPE_INVALID", "has the wrong type, expected " +
                                    (rule.kind == Kind::kText ? "" : choices_text(rule)) +
                                    std::string(expected_type(rule.kind))};
}

// Checks that a text is one of the choices. The message also names the other type that the rule
// accepts, if there is one.
Problem check_choice(const AttributeRule& rule, const std::string& text) {
  if (std::ranges::find(rule.choices, text) != rule.choices.end()) return {};
  std::string expected = choices_text(rule);
  if (rule.kind == Kind::kText) {
    expected.erase(expected.size() - std::string_view(" or ").size());
  } else {
    expected += expected_type(rule.kind);
  }
  return {"FIELD_UNSUPPORTED", quoted_value(text) + " is not known, expected " + expected};
}

Problem check_number(const AttributeRule& rule, double v) {
  if (in_range(rule, v)) return {};
  return {"FIELD_OUT_OF_RANGE", number_text(v) + " is out of range, expected " + range_text(rule)};
}

template <typename T>
Problem check_list(const AttributeRule& rule, const std::vector<T>& values) {
  const auto count = static_cast<int64_t>(values.size());
  const bool fits = rule.lengths.empty()
                        ? count >= rule.count_min && count <= rule.count_max
                        : std::ranges::find(rule.lengths, count) != rule.lengths.end();
  if (!fits) {
    std::string expected;
    for (const int64_t n : rule.lengths) {
      expected += (expected.empty() ? "" : " or ") + std::to_string(n);
    }
    if (rule.lengths.empty()) {
      expected = std::to_string(rule.count_min) + " to " + std::to_string(rule.count_max);
    }
    return {"FIELD_OUT_OF_RANGE",
            "has " + std::to_string(count) + " entries, expected " + expected};
  }
  for (const T v : values) {
    if (Problem p = check_number(rule, static_cast<double>(v)); !p.reason.empty()) return p;
  }
  return {};
}

// Checks numbers by name. The problem names the entry at fault.
template <typename Named>
Problem check_named(const AttributeRule& rule, const Named& named) {
  for (const auto& [name, number] : named) {
    Problem p = check_number(rule, static_cast<double>(number));
    if (p.reason.empty()) continue;
    p.name = name;
    return p;
  }
  return {};
}

Problem check_value(const AttributeRule& rule, const Attribute& value) {
  const auto* number = std::get_if<int64_t>(&value);
  const auto* text = std::get_if<std::string>(&value);
  switch (rule.kind) {
    case Kind::kInt:
    case Kind::kBool:
      return number ? check_number(rule, static_cast<double>(*number)) : type_problem(rule);
    case Kind::kFloat: {
      if (number) return check_number(rule, static_cast<double>(*number));
      const auto* real_number = std::get_if<double>(&value);
      return real_number ? check_number(rule, *real_number) : type_problem(rule);
    }
    case Kind::kText:
      if (text == nullptr) return type_problem(rule);
      return rule.choices.empty() ? Problem{} : check_choice(rule, *text);
    case Kind::kDims: {
      if (number) return check_list<int64_t>(rule, {*number});
      const auto* list = std::get_if<std::vector<int64_t>>(&value);
      return list ? check_list(rule, *list) : type_problem(rule);
    }
    case Kind::kNumbers:
    case Kind::kNamedNumbers: {
      if (text != nullptr && !rule.choices.empty()) return check_choice(rule, *text);
      if (const auto* integers = std::get_if<std::vector<int64_t>>(&value)) {
        return check_list(rule, *integers);
      }
      if (rule.kind == Kind::kNamedNumbers) {
        if (const auto* named = std::get_if<NamedInts>(&value)) return check_named(rule, *named);
        if (const auto* named = std::get_if<NamedNumbers>(&value)) return check_named(rule, *named);
      }
      const auto* list = std::get_if<std::vector<double>>(&value);
      return list ? check_list(rule, *list) : type_problem(rule);
    }
    case Kind::kWidths: {
      if (text != nullptr) return check_choice(rule, *text);
      if (number) return check_number(rule, static_cast<double>(*number));
      const auto* named = std::get_if<NamedInts>(&value);
      return named != nullptr ? check_named(rule, *named) : type_problem(rule);
    }
  }
  return {};
}

}  // namespace

AttributeRule dims_rule(std::string_view name, bool required, double min, double max,
                        std::vector<int64_t> lengths) {
  AttributeRule rule;
  rule.kind = Kind::kDims;
  rule.name = name;
  rule.required = required;
  rule.min = min;
  rule.max = max;
  rule.lengths = std::move(lengths);
  return rule;
}

AttributeRule integer_rule(std::string_view name, bool required, double min, double max) {
  AttributeRule rule;
  rule.name = name;
  rule.required = required;
  rule.min = min;
  rule.max = max;
  return rule;
}

AttributeRule boolean_rule(std::string_view name) {
  AttributeRule rule;
  rule.kind = Kind::kBool;
  rule.name = name;
  rule.max = 1;
  return rule;
}

AttributeRule choice_rule(std::string_view name, std::vector<std::string_view> choices) {
  AttributeRule rule;
  rule.kind = Kind::kText;
  rule.name = name;
  rule.choices = std::move(choices);
  return rule;
}

AttributeRule text_rule(std::string_view name) { return choice_rule(name, {}); }

AttributeRule real_rule(std::string_view name, bool required, RealBounds bounds) {
  AttributeRule rule;
  rule.kind = Kind::kFloat;
  rule.name = name;
  rule.required = required;
  rule.min = bounds.min;
  rule.max = bounds.max;
  rule.min_excluded = bounds.min_excluded;
  rule.max_excluded = bounds.max_excluded;
  return rule;
}

std::vector<int64_t> spell_out(const Attributes& attributes, std::string_view name, size_t count,
                               std::vector<int64_t> fallback) {
  const Attribute* value = attributes.find(name);
  if (value == nullptr) return fallback;
  std::vector<int64_t> list;
  if (const auto* one = std::get_if<int64_t>(value)) {
    list = {*one};
  } else {
    list = std::get<std::vector<int64_t>>(*value);
  }
  if (list.size() == 1) list.resize(count, list[0]);
  return list;
}

void check_attributes(const std::vector<AttributeRule>& rules, const Attributes& attributes,
                      const std::string& path, const std::string& where, Violations& violations) {
  for (const auto& [name, value] : attributes.items()) {
    const auto rule = std::ranges::find(rules, name, &AttributeRule::name);
    if (rule == rules.end()) {
      std::vector<std::string> known;
      for (const AttributeRule& r : rules) known.emplace_back(r.name);
      std::string description = "is not known here";
      if (violations.count() >= Violations::kMax) {
        // Only the count of further violations matters, so the slow search for a similar name is
        // skipped.
      } else if (const auto nearest = nearest_name(name, known)) {
        description += ", did you mean '" + *nearest + "'?";
      } else if (known.empty()) {
        description += ", this takes no attributes";
      } else {
        description += ", expected ";
        for (size_t i = 0; i < known.size(); ++i) description += (i > 0 ? ", " : "") + known[i];
      }
      violations.add("FIELD_UNKNOWN", path + "." + name, where + ": " + name, description);
      continue;
    }
    Problem p = check_value(*rule, value);
    if (!p.reason.empty()) {
      const std::string entry = p.name.empty() ? name : name + "." + p.name;
      violations.add(std::move(p.reason), path + "." + entry, where + ": " + entry,
                     std::move(p.description));
    }
  }
  for (const AttributeRule& rule : rules) {
    if (rule.required && attributes.find(rule.name) == nullptr) {
      const std::string name(rule.name);
      const std::string range = rule.kind == Kind::kText ? "" : " in " + range_text(rule);
      violations.add("FIELD_REQUIRED", path + "." + name, where + ": " + name,
                     "is required: " + std::string(expected_type(rule.kind)) + range);
    }
  }
}

}  // namespace trainyard
