// src/models/layer_schema.h: what a layer may say, per op: the one table that checks attributes,
// fills defaults and names what would have been accepted. Names and meanings are ONNX's, plus the
// sizes that ONNX reads off weights (Gemm `units`, Conv `out_channels`) and `bias`.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/violations.h"
#include "src/models/model_spec.h"

namespace trainyard {

struct AttributeRule {
  enum class Kind : uint8_t {
    kInt,
    kFloat,  // takes an integer too
    kBool,   // an integer attribute, 0 or 1
    kText,
    kDims,  // a list of integers; one integer stands for a list of one
  } kind = Kind::kInt;
  std::string_view name;
  bool required = false;
  double min = 0, max = 0;       // of the number, or of each entry
  bool max_excluded = false;     // [min, max)
  bool min_excluded = false;     // (min, max]
  std::vector<int64_t> lengths;  // kDims: how many entries are accepted; empty: as below
  int64_t count_min = 1, count_max = 8;
  std::vector<std::string_view> choices;  // kText
};

struct LayerRule {
  std::string_view op;     // "MaxPool"
  std::string_view field;  // "max_pool": the key in a spec file, and the stem of default names
  int64_t inputs = 1;      // how many inputs the layer takes
  std::vector<AttributeRule> attributes;
};

/// Every layer that a model may contain, in the order of the job spec's documentation.
const std::vector<LayerRule>& layer_rules();
const LayerRule* find_layer_rule(std::string_view op);

/// Checks the attributes of one layer against its rule; problems go to `violations` under
/// "<path>.<field>.<attribute>", named "<where>: <attribute>".
void check_attributes(const LayerRule& rule, const Attributes& attributes, const std::string& path,
                      const std::string& where, Violations& violations);

/// The same check for anything else that is described by rules (preset parameters).
void check_attributes(const std::vector<AttributeRule>& rules, const Attributes& attributes,
                      const std::string& path, const std::string& where, Violations& violations);

/// Checked attributes with every default filled in and short forms spelt out: kernel_shape and
/// strides have two entries, pads four, a pool's strides default to its window.
Attributes complete_attributes(const LayerRule& rule, const Attributes& attributes);

}  // namespace trainyard
