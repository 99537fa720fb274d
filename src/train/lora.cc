#include "src/train/lora.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "src/base/glob.h"
#include "src/base/stop.h"
#include "src/base/text.h"
#include "src/base/violations.h"

namespace trainyard {

namespace {

constexpr int64_t kRankMax = 1024;
constexpr double kAlphaMax = 1e6;

std::string target_field(size_t i) { return "recipe.lora.targets[" + std::to_string(i) + "]"; }

std::string without(std::string_view name, std::string_view suffix) {
  return std::string(name.substr(0, name.size() - suffix.size()));
}

std::vector<float> floats_of(const TensorView& t) {
  std::vector<float> values(t.bytes.size() / sizeof(float));
  std::memcpy(values.data(), t.bytes.data(), t.bytes.size());
  return values;
}

/// W + scale * B A; sums in double, so that only the last rounding shows.
std::vector<std::byte> merge(const TensorView& weight, const TensorView& a, const TensorView& b,
                             double scale) {
  std::vector<float> w = floats_of(weight);
  const std::vector<float> va = floats_of(a), vb = floats_of(b);
  const auto rank = static_cast<size_t>(a.type.shape[0]);
  const auto inputs = static_cast<size_t>(a.type.shape[1]);
  std::vector<double> row(inputs);
  for (size_t o = 0; o * inputs < w.size(); ++o) {
    std::ranges::fill(row, 0.0);
    for (size_t r = 0; r < rank; ++r) {
      const double factor = scale * static_cast<double>(vb[o * rank + r]);
      for (size_t i = 0; i < inputs; ++i)
        row[i] += factor * static_cast<double>(va[r * inputs + i]);
    }
    for (size_t i = 0; i < inputs; ++i) {
      float& value = w[o * inputs + i];
      value = static_cast<float>(static_cast<double>(value) + row[i]);
    }
  }
  const std::span<const std::byte> bytes = std::as_bytes(std::span(w));
  return {bytes.begin(), bytes.end()};
}

/// "layer1.0.fc" for "layer1/0/fc": modules are separated by dots in PyTorch.
std::string module_name(std::string layer) {
  std::ranges::replace(layer, '/', '.');
  return layer;
}

}  // namespace

Status check_lora(const LoraSpec& lora) {
  if (lora.rank == 0) return {};
  Violations violations;
  if (lora.rank < 1 || lora.rank > kRankMax) {
    violations.add("FIELD_OUT_OF_RANGE", "recipe.lora.rank",
                   std::to_string(lora.rank) + " is out of range, expected 1..1024");
  }
  if (!(lora.alpha > 0 && lora.alpha <= kAlphaMax)) {  // NaN fails every comparison
    violations.add(
        "FIELD_OUT_OF_RANGE", "recipe.lora.alpha",
        std::to_string(lora.alpha) + " is out of range, expected more than 0 and at most 1e6");
  }
  if (!(lora.dropout >= 0 && lora.dropout < 1)) {
    violations.add("FIELD_OUT_OF_RANGE", "recipe.lora.dropout",
                   std::to_string(lora.dropout) + " is out of range, expected [0, 1)");
  }
  if (lora.targets.empty()) {
    violations.add("FIELD_REQUIRED", "recipe.lora.targets",
                   "is missing, expected patterns of the names of gemm and linear layers");
  }
  if (lora.targets.size() > kPatternsMax) {
    violations.add("FIELD_OUT_OF_RANGE", "recipe.lora.targets", too_many(lora.targets.size()));
  }
  for (size_t i = 0; i < lora.targets.size(); ++i) {
    if (!lora.targets[i].empty() && lora.targets[i].size() <= kPatternLengthMax) continue;
    violations.add("FIELD_OUT_OF_RANGE", target_field(i),
                   "expected a pattern of 1..256 characters, such as fc*");
  }
  return violations.empty() ? Status() : Status(violations.to_error());
}

std::vector<ParameterGroup> lora_groups(const LoraSpec& lora) {
  if (lora.rank == 0) return {};
  return {{.match = "*", .freeze = true},
          {.match = "*" + std::string(kLoraA), .freeze = false},
          {.match = "*" + std::string(kLoraB), .freeze = false}};
}

Status check_lora_model(const Recipe& recipe, const Model& model, const std::stop_token& stop) {
  if (recipe.lora.rank == 0) return {};
  Violations violations;
  for (size_t i = 0; i < recipe.lora.targets.size(); ++i) {
    if (Status s = check_stop(stop); !s.ok()) return s;
    const std::string& pattern = recipe.lora.targets[i];
    if (std::ranges::any_of(model.products, [&](const auto& n) { return glob_match(pattern, n); }))
      continue;
    violations.add(
        "FIELD_UNKNOWN_VALUE", target_field(i),
        model.products.empty()
            ? quoted_value(pattern) +
                  " matches nothing: the model has no gemm or linear layer with a "
                  "weight of its own"
            : no_match(pattern, model.products, "gemm or linear layer with a weight of its own"));
  }
  // Whether a parameter trains, group by group.
  std::map<std::string, bool> trains;
  for (const TensorInfo& t : model.graph.tensors()) {
    if (t.role == Role::kParameter) trains[t.name] = is_lora(t.name);
  }
  for (size_t i = 0; i < recipe.parameter_groups.size(); ++i) {
    const ParameterGroup& g = recipe.parameter_groups[i];
    if (!g.freeze) continue;
    if (Status s = check_stop(stop); !s.ok()) return s;
    const std::string field = "recipe.parameter_groups[" + std::to_string(i) + "].freeze";
    bool matched = false, changed = false;
    for (auto& [name, training] : trains) {
      if (!glob_match(g.match, name)) continue;
      matched = true;
      changed |= training == *g.freeze;
      training = !*g.freeze;
      const std::string layer = name.ends_with(".weight") ? without(name, ".weight") : "";
      if (training && !is_lora(name) && trains.contains(layer + std::string(kLoraA))) {
        violations.add("FIELD_CONFLICT", field,
                       name +
                           " is the weight of a target of recipe.lora, which stays as it is; "
                           "take the layer out of the targets or of this group's match");
        break;
      }
    }
    if (matched && !changed && *g.freeze) {
      violations.add(
          "FIELD_UNUSED", field,
          "has no effect with recipe.lora, which freezes every parameter but its own; remove it");
    }
  }
  return violations.empty() ? Status() : Status(violations.to_error());
}

LoraModel split_lora(const Recipe& recipe, std::span<const TensorView> weights) {
  std::map<std::string_view, const TensorView*> by_name;
  for (const TensorView& t : weights) by_name[t.name] = &t;
  LoraModel out;
  std::vector<std::string> modules;
  for (const TensorView& t : weights) {
    if (is_lora(t.name)) {
      const std::string_view suffix = t.name.ends_with(kLoraA) ? kLoraA : kLoraB;
      const std::string module = module_name(without(t.name, suffix));
      if (suffix == kLoraA) modules.push_back(module);
      out.adapter.push_back({"base_model.model." + module + std::string(suffix), t.type, t.bytes});
      continue;
    }
    const std::string layer = t.name.ends_with(".weight") ? without(t.name, ".weight") : "";
    const std::string name_a = layer + std::string(kLoraA);
    const auto a = by_name.find(name_a);
    if (a == by_name.end()) {
      out.weights.push_back(t);
      continue;
    }
    const TensorView& b = *by_name.at(layer + std::string(kLoraB));
    out.storage.push_back(merge(t, *a->second, b, lora_scale(recipe.lora)));
    out.weights.push_back({t.name, t.type, out.storage.back()});
  }
  const nlohmann::json config = {{"peft_type", "LORA"},
                                 {"r", recipe.lora.rank},
                                 {"lora_alpha", recipe.lora.alpha},
                                 {"lora_dropout", recipe.lora.dropout},
                                 {"target_modules", modules},
                                 {"bias", "none"},
                                 {"fan_in_fan_out", false},
                                 {"inference_mode", true},
                                 {"base_model_name_or_path", recipe.initial_weights.source},
                                 {"task_type", nullptr}};
  out.adapter_config = config.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  return out;
}

}  // namespace trainyard
