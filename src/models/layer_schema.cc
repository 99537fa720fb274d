#include "src/models/layer_schema.h"

#include <algorithm>
#include <cmath>

#include "src/base/text.h"

namespace trainyard {

namespace {

using Kind = AttributeRule::Kind;

// Bounds are far above any sensible model and low enough that no product of them overflows before
// Shape::fits() has looked at it.
constexpr double kUnitsMax = 1048576;
constexpr double kChannelsMax = 65536;
constexpr double kWindowMax = 1024;

AttributeRule dims(std::string_view name, bool required, double min, double max,
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

AttributeRule integer(std::string_view name, bool required, double min, double max) {
  AttributeRule rule;
  rule.name = name;
  rule.required = required;
  rule.min = min;
  rule.max = max;
  return rule;
}

AttributeRule boolean(std::string_view name) {
  AttributeRule rule;
  rule.kind = Kind::kBool;
  rule.name = name;
  rule.max = 1;
  return rule;
}

AttributeRule real(std::string_view name, bool required, double min, double max, bool min_excluded,
                   bool max_excluded) {
  AttributeRule rule;
  rule.kind = Kind::kFloat;
  rule.name = name;
  rule.required = required;
  rule.min = min;
  rule.max = max;
  rule.min_excluded = min_excluded;
  rule.max_excluded = max_excluded;
  return rule;
}

std::vector<AttributeRule> pool_attributes(bool average) {
  std::vector<AttributeRule> rules = {dims("kernel_shape", true, 1, kWindowMax, {1, 2}),
                                      dims("strides", false, 1, kWindowMax, {1, 2}),
                                      dims("pads", false, 0, kWindowMax, {1, 4})};
  if (average) rules.push_back(boolean("count_include_pad"));
  return rules;
}

std::vector<LayerRule> make_rules() {
  AttributeRule approximate;
  approximate.kind = Kind::kText;
  approximate.name = "approximate";
  approximate.choices = {"none", "tanh"};
  return {
      {"Gemm", "gemm", 1, {integer("units", false, 1, kUnitsMax), boolean("bias")}},
      {"Conv",
       "conv",
       1,
       {integer("out_channels", true, 1, kChannelsMax),
        dims("kernel_shape", true, 1, kWindowMax, {1, 2}),
        dims("strides", false, 1, kWindowMax, {1, 2}), dims("pads", false, 0, kWindowMax, {1, 4}),
        boolean("bias")}},
      {"MaxPool", "max_pool", 1, pool_attributes(false)},
      {"AveragePool", "average_pool", 1, pool_attributes(true)},
      {"GlobalAveragePool", "global_average_pool", 1, {}},
      {"Relu", "relu", 1, {}},
      {"Sigmoid", "sigmoid", 1, {}},
      {"Tanh", "tanh", 1, {}},
      {"Gelu", "gelu", 1, {approximate}},
      {"Add", "add", 2, {}},
      {"Flatten", "flatten", 1, {integer("axis", false, 1, 1)}},
      {"Reshape", "reshape", 1, {dims("shape", true, -1, kUnitsMax, {})}},
      {"Dropout", "dropout", 1, {real("ratio", true, 0, 1, false, true)}},
      {"BatchNormalization",
       "batch_normalization",
       1,
       {real("epsilon", false, 0, 1, true, false), real("momentum", false, 0, 1, false, false)}},
  };
}

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
  // Written so that NaN is out of range.
  const bool above = rule.min_excluded ? v > rule.min : v >= rule.min;
  const bool below = rule.max_excluded ? v < rule.max : v <= rule.max;
  return above && below;
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
  }
  return "?";
}

// What is wrong with one value: (reason, description), or an empty reason.
struct Problem {
  std::string reason;
  std::string description;
};

Problem type_problem(const AttributeRule& rule) {
  return {"FIELD_TYPE", "has the wrong type, expected " + std::string(expected_type(rule.kind))};
}

Problem check_number(const AttributeRule& rule, double v) {
  if (in_range(rule, v)) return {};
  return {"FIELD_OUT_OF_RANGE", number_text(v) + " is out of range, expected " + range_text(rule)};
}

Problem check_dims(const AttributeRule& rule, const std::vector<int64_t>& values) {
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
  for (const int64_t v : values) {
    if (Problem p = check_number(rule, static_cast<double>(v)); !p.reason.empty()) return p;
  }
  return {};
}

Problem check_value(const AttributeRule& rule, const Attribute& value) {
  const auto* number = std::get_if<int64_t>(&value);
  switch (rule.kind) {
    case Kind::kInt:
    case Kind::kBool:
      return number ? check_number(rule, static_cast<double>(*number)) : type_problem(rule);
    case Kind::kFloat: {
      if (number) return check_number(rule, static_cast<double>(*number));
      const auto* real_number = std::get_if<double>(&value);
      return real_number ? check_number(rule, *real_number) : type_problem(rule);
    }
    case Kind::kText: {
      const auto* text = std::get_if<std::string>(&value);
      if (text == nullptr) return type_problem(rule);
      if (std::ranges::find(rule.choices, *text) != rule.choices.end()) return {};
      std::string expected;
      for (const std::string_view c : rule.choices) {
        expected += (expected.empty() ? "" : " or ") + std::string(c);
      }
      return {"FIELD_UNSUPPORTED", quoted_value(*text) + " is not known, expected " + expected};
    }
    case Kind::kDims: {
      if (number) return check_dims(rule, {*number});
      const auto* list = std::get_if<std::vector<int64_t>>(&value);
      return list ? check_dims(rule, *list) : type_problem(rule);
    }
  }
  return {};
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

}  // namespace

const std::vector<LayerRule>& layer_rules() {
  static const std::vector<LayerRule> rules = make_rules();
  return rules;
}

const LayerRule* find_layer_rule(std::string_view op) {
  for (const LayerRule& rule : layer_rules()) {
    if (rule.op == op) return &rule;
  }
  return nullptr;
}

void check_attributes(const std::vector<AttributeRule>& rules, const Attributes& attributes,
                      const std::string& path, const std::string& where, Violations& violations) {
  for (const auto& [name, value] : attributes.items()) {
    const auto rule = std::ranges::find(rules, name, &AttributeRule::name);
    if (rule == rules.end()) {
      std::vector<std::string> known;
      for (const AttributeRule& r : rules) known.emplace_back(r.name);
      std::string description = "is not known here";
      if (const auto nearest = nearest_name(name, known)) {
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
      violations.add(std::move(p.reason), path + "." + name, where + ": " + name,
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

void check_attributes(const LayerRule& rule, const Attributes& attributes, const std::string& path,
                      const std::string& where, Violations& violations) {
  check_attributes(rule.attributes, attributes, path + "." + std::string(rule.field), where,
                   violations);
}

Attributes complete_attributes(const LayerRule& rule, const Attributes& attributes) {
  Attributes full = attributes;
  if (rule.op == "Conv" || rule.op == "MaxPool" || rule.op == "AveragePool") {
    const auto kernel = spell_out(attributes, "kernel_shape", 2, {});
    const auto strides = rule.op == "Conv" ? std::vector<int64_t>{1, 1} : kernel;
    full.set("kernel_shape", kernel);
    full.set("strides", spell_out(attributes, "strides", 2, strides));
    full.set("pads", spell_out(attributes, "pads", 4, {0, 0, 0, 0}));
  }
  if (rule.op == "AveragePool") {
    full.set("count_include_pad", attributes.get_int("count_include_pad", 0));
  }
  if (rule.op == "Conv" || rule.op == "Gemm") full.set("bias", attributes.get_int("bias", 1));
  if (rule.op == "Gelu") full.set("approximate", attributes.get_string("approximate", "none"));
  if (rule.op == "Flatten") full.set("axis", int64_t{1});
  if (rule.op == "Reshape") full.set("shape", spell_out(attributes, "shape", 1, {}));
  if (rule.op == "BatchNormalization") {
    full.set("epsilon", attributes.get_float("epsilon", 1e-5));
    full.set("momentum", attributes.get_float("momentum", 0.9));
  }
  return full;
}

}  // namespace trainyard
