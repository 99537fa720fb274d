#include "src/train/initial_weights.h"

#include <algorithm>

#include "src/base/glob.h"
#include "src/base/violations.h"

namespace trainyard {

namespace {

constexpr size_t kNamesShown = 8;

bool matches_any(const std::vector<std::string>& patterns, const std::string& name) {
  return std::ranges::any_of(patterns, [&](const auto& p) { return glob_match(p, name); });
}

std::string line(const char* what, const std::vector<std::string>& names) {
  if (names.empty()) return "";
  std::string text = "\n" + std::to_string(names.size()) + " " + what + ": ";
  for (size_t i = 0; i < std::min(names.size(), kNamesShown); ++i) {
    text += (i > 0 ? ", " : "") + names[i];
  }
  return text + (names.size() > kNamesShown ? ", ..." : "");
}

// A pattern that names nothing is a typing error, not a wish.
void check_patterns(const std::vector<std::string>& patterns, const char* field,
                    const std::vector<std::string>& names, Violations& violations) {
  for (size_t i = 0; i < patterns.size(); ++i) {
    if (std::ranges::any_of(names, [&](const auto& n) { return glob_match(patterns[i], n); })) {
      continue;
    }
    violations.add("FIELD_UNKNOWN_VALUE",
                   "recipe.initial_weights." + std::string(field) + "[" + std::to_string(i) + "]",
                   no_match(patterns[i], names));
  }
}

}  // namespace

std::string InitialWeightsReport::text() const {
  return "initial weights from " + source + line("taken", taken) +
         line("left out by the recipe", left_out) +
         line("not in the source, drawn at random", missing) +
         line("of another shape, drawn at random", mismatched) +
         line("of the source without a use here", unused);
}

Result<InitialWeightsReport> load_initial_weights(const InitialWeights& spec,
                                                  const SafetensorsFile& source, Session& session) {
  const std::vector<TensorInfo> tensors = session.weight_tensors();
  std::vector<std::string> names;
  for (const TensorInfo& t : tensors) names.push_back(t.name);
  Violations violations;
  check_patterns(spec.include, "include", names, violations);
  check_patterns(spec.exclude, "exclude", names, violations);
  if (!violations.empty()) return violations.to_error();

  InitialWeightsReport report;
  report.source = spec.source;
  std::vector<std::pair<std::string, const TensorView*>> found;
  for (const TensorInfo& t : tensors) {
    const bool wanted = (spec.include.empty() || matches_any(spec.include, t.name)) &&
                        !matches_any(spec.exclude, t.name);
    const TensorView* view = source.find(t.name);
    if (!wanted) {
      report.left_out.push_back(t.name);
    } else if (view == nullptr) {
      report.missing.push_back(t.name);
    } else if (view->type != t.type) {
      report.mismatched.push_back(t.name + " " + view->type.shape.to_string() + " where " +
                                  t.type.shape.to_string() + " is needed");
    } else {
      report.taken.push_back(t.name);
      found.emplace_back(t.name, view);
    }
  }
  for (const TensorView& view : source.tensors()) {
    if (std::ranges::find(names, view.name) == names.end()) report.unused.push_back(view.name);
  }
  const auto refuse = [&](const std::string& what) {
    return field_error("INITIAL_WEIGHTS_MISMATCH", "recipe.initial_weights", what);
  };
  if (!report.mismatched.empty() && !spec.skip_mismatched) {
    return refuse(spec.source + " has " + report.mismatched.front() +
                  (report.mismatched.size() > 1
                       ? " (and " + std::to_string(report.mismatched.size() - 1) + " more)"
                       : "") +
                  "; exclude it, or skip_mismatched: true draws it at random");
  }
  if (found.empty()) {
    return refuse("no tensor of " + spec.source + " has a name and shape of this model" +
                  (names.empty() ? "" : ", such as " + names.front()));
  }
  for (const auto& [name, view] : found) session.write_weight(name, view->bytes);
  return report;
}

}  // namespace trainyard
