#include "src/job/metrics.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "src/base/join.h"
#include "src/base/text.h"

namespace trainyard {

namespace {

using Names = std::vector<std::string>;

// Returns the metrics of training steps. `recipe.metrics` may list them; evaluations do not compute
// them.
const Names& step_metrics() {
  static const Names names = {"learning_rate", "samples_per_second", "data_wait_share",
                              "gradient_norm"};
  return names;
}

/// Returns the metrics of an evaluation for a target of this form.
Names known_metrics(TargetForm form) {
  switch (form) {
    case TargetForm::kClass:
      return {"loss",         "accuracy", "precision_macro", "precision_micro", "recall_macro",
              "recall_micro", "f1_macro", "f1_micro",        "roc_auc",         "confusion_matrix"};
    case TargetForm::kNumeric:
      return {"loss", "mae", "rmse", "r2"};
    case TargetForm::kNextToken:
      return {"loss", "accuracy", "perplexity", "bits_per_byte"};
    case TargetForm::kInput:
      return {"loss", "mae", "rmse"};
  }
  return {};
}

Names usual_metrics(const ModelInterface& interface) {
  switch (interface.target) {
    case TargetForm::kClass:
      if (interface.classes() == 2) return {"loss", "accuracy", "f1_macro", "roc_auc"};
      return {"loss", "accuracy", "f1_macro"};
    case TargetForm::kNumeric:
    case TargetForm::kNextToken:
    case TargetForm::kInput:
      return known_metrics(interface.target);
  }
  return {};
}

bool scores_classes(TargetForm form) {
  return form == TargetForm::kClass || form == TargetForm::kNextToken;
}

bool counts_by_pairs(std::string_view name) {
  return name == "confusion_matrix" || name == "roc_auc";
}

bool has(const Names& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

void check_name(const std::string& name, const std::string& field, const ModelInterface& interface,
                Violations& violations) {
  if (has(step_metrics(), name)) return;
  const Names known = known_metrics(interface.target);
  if (has(known, name)) {
    if (!counts_by_pairs(name) || interface.classes() <= kConfusionClassesMax) return;
    violations.add(
        "FIELD_OUT_OF_RANGE", field,
        quoted_value(name) +
            " stores numbers for each pair of classes or of class and row, and there are " +
            std::to_string(interface.classes()) + " classes, expected at most " +
            std::to_string(kConfusionClassesMax) + "; top_K_accuracy has no such limit");
    return;
  }
  const auto k = top_k_of(name);
  if (k && scores_classes(interface.target)) {
    const int64_t classes = std::max(interface.classes(), interface.outputs);
    if (*k < classes) return;
    violations.add("FIELD_OUT_OF_RANGE", field,
                   quoted_value(name) + " of " + std::to_string(classes) +
                       " classes is always 1, expected top_K_accuracy with K below that");
    return;
  }
  const auto near = nearest_name(name, known);
  violations.add(
      "FIELD_UNKNOWN_VALUE", field,
      quoted_value(name) + " is not a metric of this target, expected one of " +
          joined(known, ", ") + (scores_classes(interface.target) ? ", top_K_accuracy" : "") +
          ", " + joined(step_metrics(), ", ") + (near ? "; did you mean '" + *near + "'?" : ""));
}

void check_mode(const std::string& mode, const std::string& field, Violations& violations) {
  if (mode.empty() || mode == "min" || mode == "max") return;
  violations.add("FIELD_UNKNOWN_VALUE", field,
                 quoted_value(mode) + " is not known, expected min or max");
}

/// Refuses a `metric` that validation does not report.
void check_watched(const std::string& metric, const std::string& field, const Recipe& recipe,
                   const ModelInterface& interface, bool validates, Violations& violations) {
  if (!validates) {
    violations.add("FIELD_UNUSED", field, "needs validation rows; set recipe.validation_split");
    return;
  }
  Names reported;
  for (const std::string& name : evaluation_metrics(recipe, interface)) {
    if (name != "confusion_matrix") reported.push_back("val/" + name);
  }
  if (has(reported, metric)) return;
  const auto near = nearest_name(metric, reported);
  violations.add("FIELD_UNKNOWN_VALUE", field,
                 quoted_value(metric) + " is not reported by this job, expected one of " +
                     joined(reported, ", ") + (near ? "; did you mean '" + *near + "'?" : "") +
                     " (recipe.metrics adds others)");
}

}  // namespace

bool reports(const Recipe& recipe, std::string_view name) { return has(recipe.metrics, name); }

std::vector<std::string> evaluation_metrics(const Recipe& recipe, const ModelInterface& interface) {
  Names names = usual_metrics(interface);
  for (const std::string& name : recipe.metrics) {
    if (!has(step_metrics(), name) && !has(names, name)) names.push_back(name);
  }
  return names;
}

std::optional<int64_t> top_k_of(std::string_view name) {
  constexpr std::string_view kPrefix = "top_", kSuffix = "_accuracy";
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return std::nullopt;
  if (name.size() <= kPrefix.size() + kSuffix.size()) return std::nullopt;
  const std::string_view digits =
      name.substr(kPrefix.size(), name.size() - kPrefix.size() - kSuffix.size());
  int64_t k = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), k);
  // Each metric has only one spelling: no sign, no leading zero.
  const bool whole = error == std::errc() && end == digits.data() + digits.size();
  if (!whole || k < 1 || digits[0] == '0') return std::nullopt;
  return k;
}

bool is_loss_like(std::string_view metric) {
  const std::string_view name = metric.substr(metric.rfind('/') + 1);
  return name == "loss" || name == "mae" || name == "rmse" || name == "perplexity" ||
         name == "bits_per_byte";
}

bool minimizes(const std::string& metric, const std::string& mode) {
  return mode.empty() ? is_loss_like(metric) : mode == "min";
}

void check_metrics(const Recipe& recipe, const ModelInterface& interface, bool validates,
                   Violations& violations) {
  for (size_t i = 0; i < recipe.metrics.size(); ++i) {
    const std::string field = "recipe.metrics[" + std::to_string(i) + "]";
    check_name(recipe.metrics[i], field, interface, violations);
    const auto same = std::ranges::find(recipe.metrics, recipe.metrics[i]);
    if (same - recipe.metrics.begin() < static_cast<int64_t>(i)) {
      violations.add("FIELD_DUPLICATE", field,
                     quoted_value(recipe.metrics[i]) + " is listed twice");
    }
  }
  if (const KeepBest& best = recipe.keep_best; !best.metric.empty()) {
    check_watched(best.metric, "recipe.keep_best.metric", recipe, interface, validates, violations);
    check_mode(best.mode, "recipe.keep_best.mode", violations);
  }
  if (const EarlyStopping& stop = recipe.early_stopping; !stop.metric.empty()) {
    check_watched(stop.metric, "recipe.early_stopping.metric", recipe, interface, validates,
                  violations);
    check_mode(stop.mode, "recipe.early_stopping.mode", violations);
    if (stop.patience < 1 || stop.patience > 1'000'000) {
      violations.add(
          "FIELD_OUT_OF_RANGE", "recipe.early_stopping.patience",
          std::to_string(stop.patience) + " is out of range, expected 1..1000000 evaluations");
    }
    if (!(stop.min_delta >= 0) || !std::isfinite(stop.min_delta)) {
      violations.add("FIELD_OUT_OF_RANGE", "recipe.early_stopping.min_delta",
                     "is out of range, expected a number of 0 or more");
    }
  }
}

}  // namespace trainyard
