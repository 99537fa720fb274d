#include "src/planning/lora.h"

#include <algorithm>
#include <map>

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
  if (lora.rank_scaling != "linear" && lora.rank_scaling != kRankScalingSqrt) {
    violations.add("FIELD_UNKNOWN_VALUE", "recipe.lora.rank_scaling",
                   quoted_value(lora.rank_scaling) + " is not known, expected linear or sqrt");
  }
  if (lora.targets.empty()) {
    violations.add("FIELD_REQUIRED", "recipe.lora.targets",
                   "is missing, expected all-linear, or patterns of the names of gemm and linear "
                   "layers");
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

std::vector<ParameterGroup> lora_groups(const LoraSpec& lora, const Model& model) {
  if (lora.rank == 0) return {};
  std::vector<ParameterGroup> groups = {{.match = "*", .freeze = true},
                                        {.match = "*" + std::string(kLoraA), .freeze = false},
                                        {.match = "*" + std::string(kLoraB), .freeze = false}};
  if (!model.trained_layer.empty()) {
    groups.push_back({.match = model.trained_layer + ".*", .freeze = false});
  }
  return groups;
}

Status check_lora_model(const Recipe& recipe, const Model& model, const std::stop_token& stop) {
  if (recipe.lora.rank == 0) return {};
  Violations violations;
  for (size_t i = 0; i < recipe.lora.targets.size(); ++i) {
    if (Status s = check_stop(stop); !s.ok()) return s;
    const std::string& pattern = recipe.lora.targets[i];
    const auto is_adapted = [&](const std::string& layer) {
      return is_lora_target(pattern, layer, /*is_last=*/false) &&
             model.graph.find_tensor(layer + std::string(kLoraA)).has_value();
    };
    if (std::ranges::any_of(model.products, is_adapted)) continue;
    violations.add(
        "FIELD_UNKNOWN_VALUE", target_field(i),
        model.products.empty()
            ? quoted_value(pattern) +
                  " matches nothing: the model has no gemm or linear layer with a "
                  "weight of its own"
            : no_match(pattern, model.products, "gemm or linear layer with a weight of its own"));
  }
  // Whether each parameter trains, updated group by group.
  std::map<std::string, bool> trains;
  for (const TensorInfo& t : model.graph.tensors()) {
    if (t.role != Role::kParameter) continue;
    trains[t.name] = is_lora(t.name) || t.name == model.trained_layer + ".weight";
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
                           " is the weight of a target of recipe.lora, which is frozen; remove the "
                           "layer from the targets or from this group's match");
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

}  // namespace trainyard
