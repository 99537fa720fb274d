// src/job/metrics.h: which metrics a job reports, by name.
//
//   train/  loss and accuracy of each step, learning_rate, samples_per_second, data_wait_share;
//           gradient_norm if gradients are clipped by norm or the recipe lists it
//   val/, test/  the metrics of each evaluation, which depend on the target's form
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/violations.h"
#include "src/job/recipe.h"

namespace trainyard {

/// Returns true if `recipe.metrics` contains the name.
bool reports(const Recipe& recipe, std::string_view name);

/// The most classes for metrics that keep a number per pair of classes (confusion_matrix, which
/// takes 128 MiB for so many) or per class and row (roc_auc). For more classes they are refused.
inline constexpr int64_t kConfusionClassesMax = 4096;

/// Returns the metrics that an evaluation computes, in the order in which they are reported: the
/// target's usual metrics, then those of the recipe. "confusion_matrix" is not a number and is
/// logged with the final model.
std::vector<std::string> evaluation_metrics(const Recipe& recipe, const ModelInterface& interface);

/// Returns the 5 of "top_5_accuracy"; nullopt for a name that is no such metric.
std::optional<int64_t> top_k_of(std::string_view name);

/// Returns true if lower values of the metric are better.
bool is_loss_like(std::string_view metric);
/// Returns true if `mode` is "min", or if it is empty and lower values of `metric` ("val/loss") are
/// better.
bool minimizes(const std::string& metric, const std::string& mode);

/// Refuses metrics that do not exist for the target, and keep_best or early_stopping by a metric
/// that is not reported. `validates`: there are validation rows.
void check_metrics(const Recipe& recipe, const ModelInterface& interface, bool validates,
                   Violations& violations);

}  // namespace trainyard
