#include "src/planning/weight_match.h"

#include <algorithm>
#include <map>
#include <set>

#include "src/base/glob.h"
#include "src/base/join.h"
#include "src/base/text.h"
#include "src/base/violations.h"
#include "src/models/lora.h"
#include "src/planning/recipe_check.h"

namespace trainyard {

namespace {

// Refuses patterns that match no name, since they are probably typing errors.
void check_patterns(const std::vector<std::string>& patterns, const char* field,
                    const std::vector<std::string>& names, Violations& violations) {
  for (size_t i = 0; i < patterns.size(); ++i) {
    if (std::ranges::any_of(names, [&](const auto& n) { return glob_match(patterns[i], n); })) {
      continue;
    }
    if (violations.count() >= Violations::kMax) break;  // no_match() is slow
    violations.add("FIELD_UNKNOWN_VALUE",
                   "recipe.initial_weights." + std::string(field) + "[" + std::to_string(i) + "]",
                   no_match(patterns[i], names));
  }
}

/// Maps the name of each source tensor, after renaming, to the tensor's index.
std::map<std::string, size_t> rename_all(const InitialWeights& spec,
                                         std::span<const FileTensor> source,
                                         Violations& violations) {
  std::map<std::string, size_t> by_name;
  std::map<std::string, bool> used;
  for (size_t i = 0; i < source.size(); ++i) {
    std::string name = source[i].name;
    const std::pair<const std::string, std::string>* rule = nullptr;
    for (const auto& candidate : spec.rename) {
      const bool longer = rule == nullptr || candidate.first.size() > rule->first.size();
      if (longer && name.starts_with(candidate.first)) rule = &candidate;
    }
    if (rule != nullptr) {
      name = rule->second + name.substr(rule->first.size());
      used[rule->first] = true;
    }
    const auto [there, fresh] = by_name.emplace(name, i);
    if (!fresh) {
      violations.add("INITIAL_WEIGHTS_MISMATCH", "recipe.initial_weights.rename",
                     quoted_value(source[i].name) + " and " +
                         quoted_value(source[there->second].name) + " would both be named " +
                         quoted_value(name));
      break;
    }
  }
  for (const auto& [prefix, replacement] : spec.rename) {
    if (used.contains(prefix)) continue;
    std::vector<std::string> names;
    for (const FileTensor& t : source) names.push_back(t.name);
    violations.add(
        "FIELD_UNKNOWN_VALUE", "recipe.initial_weights.rename." + prefix,
        "is not a prefix of any name in " + spec.source + "; there are " + first_names(names));
  }
  return by_name;
}

/// Returns why the source's tensor `there` cannot initialize the model's tensor `here`; empty if it
/// can.
std::string difference(const TensorInfo& here, const FileTensor& there) {
  if (there.shape != here.type.shape) {
    return here.name + " " + there.shape.to_string() + " where " + here.type.shape.to_string() +
           " is needed";
  }
  if (converts_to_f32(there.dtype)) return "";
  return here.name + " of type " + there.dtype + " where F32, F64, F16 or BF16 is needed";
}

}  // namespace

Result<WeightMatch> match_weights(const InitialWeights& spec, std::span<const FileTensor> source,
                                  std::span<const TensorInfo> model) {
  std::vector<std::string> names;
  for (const TensorInfo& t : model) names.push_back(t.name);
  Violations violations;
  check_patterns(spec.include, "include", names, violations);
  check_patterns(spec.exclude, "exclude", names, violations);
  const std::map<std::string, size_t> by_name = rename_all(spec, source, violations);
  if (!violations.empty()) return violations.to_error();

  WeightMatch match;
  InitialWeightsReport& report = match.report;
  report.source = spec.source;
  for (const TensorInfo& t : model) {
    const bool wanted = (spec.include.empty() || matches_any(spec.include, t.name)) &&
                        !matches_any(spec.exclude, t.name);
    const auto found = by_name.find(t.name);
    if (found == by_name.end() && is_lora(t.name)) continue;  // LoRA tensors begin at random
    if (!wanted) {
      report.left_out.push_back(t.name);
    } else if (found == by_name.end()) {
      report.missing.push_back(t.name);
    } else if (const std::string why = difference(t, source[found->second]); !why.empty()) {
      report.mismatched.push_back(why);
    } else {
      report.taken.push_back(t.name);
      match.taken.emplace_back(t.name, found->second);
    }
  }
  const std::set<std::string_view> here(names.begin(), names.end());
  for (const auto& [name, index] : by_name) {
    if (!here.contains(name)) report.unused.push_back(name);
  }
  const auto refuse = [&](const std::string& what) {
    return field_error("INITIAL_WEIGHTS_MISMATCH", "recipe.initial_weights", what);
  };
  if (!report.mismatched.empty() && !spec.skip_mismatched) {
    return refuse(spec.source + " has " + first_names(report.mismatched) +
                  "; exclude them, or skip_mismatched: true draws them at random");
  }
  if (match.taken.empty()) {
    return refuse("no tensor of " + spec.source + " has a name and shape of this model" +
                  (names.empty() ? "" : ", such as " + names.front()) +
                  (report.unused.empty() ? "" : "; it has " + first_names(report.unused)));
  }
  return match;
}

Result<InitialWeightsReport> plan_initial_weights(const ModelSpec& model, const Recipe& recipe,
                                                  const DatasetSchema& schema,
                                                  std::span<const FileTensor> source) {
  ASSIGN_OR_RETURN(const RunShape shape, check_recipe(recipe, model, schema));
  BuildOptions options;
  options.batch_size = recipe.micro_batch();
  options.lora = recipe.lora;
  ASSIGN_OR_RETURN(const Model built,
                   build_model(model, schema.interface(shape.context_length), options));
  std::vector<TensorInfo> tensors;
  for (const TensorInfo& t : built.graph.tensors()) {
    if (t.role == Role::kParameter || t.role == Role::kState) tensors.push_back(t);
  }
  ASSIGN_OR_RETURN(WeightMatch match, match_weights(recipe.initial_weights, source, tensors));
  return std::move(match.report);
}

}  // namespace trainyard
