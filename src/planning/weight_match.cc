#include "src/planning/weight_match.h"

#include <algorithm>
#include <cmath>
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

constexpr size_t kNamesShown = 2, kLayersShown = 4;

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

/// Returns why tensors of the file cannot initialize the model's tensor `here`; empty if they can.
std::string difference(const TensorInfo& here, const WeightSource& source,
                       std::span<const FileTensor> file) {
  if (const Shape shape = arranged_shape(source, file, here.type.shape); shape != here.type.shape) {
    return here.name + " " + shape.to_string() + " where " + here.type.shape.to_string() +
           " is needed";
  }
  for (const size_t index : source.tensors) {
    if (converts_to_f32(file[index].dtype)) continue;
    return here.name + " of type " + file[index].dtype + " where F32, F64, F16 or BF16 is needed";
  }
  return "";
}

/// Returns the name of a taken tensor for reports, which says if a part of the file's is left.
std::string taken_text(const TensorInfo& here, const WeightSource& source,
                       std::span<const FileTensor> file) {
  const Shape& theirs = file[source.tensors.front()].shape;
  if (source.arrangement != Arrangement::kFirstRows || theirs == here.type.shape) return here.name;
  return here.name + " (the first " + std::to_string(here.type.shape[0]) + " of " +
         std::to_string(theirs[0]) + " rows)";
}

bool is_wanted(const InitialWeights& spec, std::string_view name) {
  return (spec.include.empty() || matches_any(spec.include, name)) &&
         !matches_any(spec.exclude, name);
}

/// The numbers of a model for which the recipe does not say that they are drawn at random.
struct Elements {
  int64_t wanted = 0;
  int64_t missing = 0;  // those of `wanted` that the file does not have
};

/// Sorts the model's tensors into the lists of `match`. `used` gets the indices of the tensors of
/// the file that have a counterpart, taken or not.
Elements sort_tensors(const InitialWeights& spec, const WeightSources& sources,
                      std::span<const FileTensor> file, std::span<const TensorInfo> model,
                      WeightMatch& match, std::set<size_t>& used) {
  InitialWeightsReport& report = match.report;
  Elements elements;
  const bool has_adapter =
      std::ranges::any_of(file, [](const FileTensor& t) { return is_lora(t.name); });
  for (const TensorInfo& t : model) {
    const std::optional<WeightSource> found = sources.find(t.name);
    if (!found && is_lora(t.name) && !has_adapter) continue;  // LoRA tensors begin at random
    if (found) used.insert(found->tensors.begin(), found->tensors.end());
    if (!is_wanted(spec, t.name)) {
      report.left_out.push_back(t.name);
      continue;
    }
    elements.wanted += t.type.shape.elements();
    if (!found) {
      report.missing.push_back(t.name);
      elements.missing += t.type.shape.elements();
    } else if (const std::string why = difference(t, *found, file); !why.empty()) {
      report.mismatched.push_back(why);
    } else {
      report.taken.push_back(taken_text(t, *found, file));
      match.taken.push_back({t.name, t.type.shape, *found});
    }
  }
  return elements;
}

/// Returns a sentence on the network whose names the file has; empty if they are not known.
std::string network_hint(const WeightSources& sources) {
  const NamingScheme* const found = sources.recognized();
  if (found == nullptr) return "";
  const std::string title(found->title);
  if (!found->presets.empty()) {
    return " The file has the names of " + title + ", which is the network of the presets " +
           std::string(found->presets) + ".";
  }
  return " The file has the names of " + title +
         ", for which there is no preset; import the network with its weights by model.onnx " +
         "(docs/onnx.md).";
}

/// Returns patterns for the layers of tensors that do not fit: "[fc.*]".
std::string exclude_text(const std::vector<std::string>& mismatched) {
  std::set<std::string> layers;
  for (const std::string& text : mismatched) {
    const std::string name = text.substr(0, text.find(' '));
    layers.insert(quoted_value(name.substr(0, name.rfind('.')) + ".*"));
  }
  return layers.size() <= kLayersShown ? "exclude: [" + joined(layers, ", ") + "]"
                                       : "exclude with their names";
}

std::string percent_text(int64_t part, int64_t whole) {
  return short_number(std::round(1000.0 * static_cast<double>(part) / static_cast<double>(whole)) /
                      10) +
         " %";
}

/// Returns text such as "a, b and 4 more", with at most `shown` texts, since the server cuts long
/// messages.
std::string some_of(const std::vector<std::string>& texts, size_t shown) {
  std::string all = texts.front();
  for (size_t i = 1; i < std::min(texts.size(), shown); ++i) all += ", " + texts[i];
  return texts.size() > shown ? all + " and " + std::to_string(texts.size() - shown) + " more"
                              : all;
}

Error mismatch_error(const std::string& what) {
  return field_error("INITIAL_WEIGHTS_MISMATCH", "recipe.initial_weights", what);
}

/// Refuses a source of which most tensors, or most numbers of the model, would be left.
Status check_enough(const InitialWeights& spec, const InitialWeightsReport& report,
                    const Elements& elements, size_t file_tensors, const WeightSources& sources) {
  const size_t useful = file_tensors - report.unneeded.size();
  // With `include`, the recipe itself asks for a part of the model.
  const bool wastes = spec.include.empty() && 2 * report.unused.size() > useful;
  const bool lacks = 2 * elements.missing > elements.wanted;
  if (spec.partial || (!wastes && !lacks)) return {};
  std::string what = "only " + std::to_string(useful - report.unused.size()) + " of the " +
                     std::to_string(useful) + " tensors of " + spec.source +
                     " have a counterpart in the model";
  if (!report.missing.empty()) {
    what += ", and " + std::to_string(report.missing.size()) + " tensors of the model (" +
            percent_text(elements.missing, elements.wanted) +
            " of its numbers) would be drawn at random";
  }
  what +=
      "." + network_hint(sources) +
      " If only prefixes of names differ, rename: {\"theirs.\": \"ours/\"}; partial: true takes "
      "what fits.";
  if (!report.unused.empty())
    what += " The file also has " + some_of(report.unused, kNamesShown) + ".";
  if (!report.missing.empty())
    what += " It lacks the model's " + some_of(report.missing, kNamesShown) + ".";
  return mismatch_error(what);
}

}  // namespace

Storage storage_in_file(const TakenWeight& weight, std::span<const FileTensor> file) {
  const std::vector<size_t>& from = weight.source.tensors;
  const std::string& first = file[from.front()].dtype;
  const bool alike = std::ranges::all_of(from, [&](size_t i) { return file[i].dtype == first; });
  return alike ? half_storage(first) : Storage::kAsTyped;
}

Result<WeightMatch> match_weights(const InitialWeights& spec, std::span<const FileTensor> source,
                                  std::span<const TensorInfo> model) {
  std::vector<std::string> names;
  for (const TensorInfo& t : model) names.push_back(t.name);
  Violations violations;
  check_patterns(spec.include, "include", names, violations);
  check_patterns(spec.exclude, "exclude", names, violations);
  const std::map<std::string, size_t> by_name = rename_all(spec, source, violations);
  if (!violations.empty()) return violations.to_error();

  const WeightSources sources(by_name, model);
  WeightMatch match;
  InitialWeightsReport& report = match.report;
  report.source = spec.source;
  if (const NamingScheme* const scheme = sources.scheme()) {
    report.naming = scheme->title;
    report.normalize = scheme->normalize;
  }
  std::set<size_t> used;
  const Elements elements = sort_tensors(spec, sources, source, model, match, used);
  for (const auto& [name, index] : by_name) {
    if (used.contains(index)) continue;
    const std::string why(sources.why_unneeded(name));
    if (why.empty()) {
      report.unused.push_back(name);
    } else {
      report.unneeded.push_back(name + " (" + why + ")");
    }
  }
  if (match.taken.empty() && report.mismatched.empty()) {
    return mismatch_error(
        "no tensor of " + spec.source + " has a name and shape of this model" +
        (names.empty() ? "" : ", such as " + names.front()) +
        (report.unused.empty() ? "" : "; it has " + some_of(report.unused, kNamesShown)) + "." +
        network_hint(sources));
  }
  if (Status s = check_enough(spec, report, elements, source.size(), sources); !s.ok()) {
    return std::move(s).error();
  }
  if (!report.mismatched.empty() && !spec.skip_mismatched) {
    return mismatch_error(spec.source + " has " + some_of(report.mismatched, kLayersShown) + "; " +
                          exclude_text(report.mismatched) +
                          " or skip_mismatched: true draws them at random");
  }
  if (match.taken.empty()) {
    return mismatch_error("no tensor of " + spec.source +
                          " has the shape of this model's: it has " +
                          some_of(report.mismatched, kLayersShown));
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

std::string pixel_warning(const InitialWeightsReport& report, const Recipe& recipe,
                          const DatasetSchema& schema) {
  if (report.normalize.empty() || recipe.normalize == report.normalize ||
      schema.kind != DatasetSchema::Kind::kImage) {
    return "";
  }
  return report.source + " has weights of " + report.naming +
         ", which are usually trained with recipe.normalize: " + report.normalize +
         "; here it is " + recipe.normalize +
         ", so that frozen layers and running statistics see pixels of another scale. Write "
         "normalize: " +
         report.normalize + " if these weights were trained so.";
}

}  // namespace trainyard
