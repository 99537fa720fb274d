// src/job/metrics.h: which metrics a job reports, by name.
//
//   train/  loss and accuracy of each step, learning_rate, samples_per_second, data_wait_share;
//           gradient_norm where gradients are clipped by it or the recipe asks
//   val/, test/  of every evaluation: by the target's form
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/violations.h"
#include "src/job/recipe.h"

namespace trainyard {

/// True if the recipe's list has the name.
bool reports(const Recipe& recipe, std::string_view name);

/// Metrics that keep numbers of each class for each class (confusion_matrix: 128 MiB of so many),
/// or for each row (roc_auc), are refused of more classes.
inline constexpr int64_t kConfusionClassesMax = 4096;

/// What an evaluation computes, in the order in which it is reported: the target's usual metrics
/// and those of the recipe. "confusion_matrix" is not a number and is logged with the final model.
std::vector<std::string> evaluation_metrics(const Recipe& recipe, const ModelInterface& interface);

/// k of "top_5_accuracy".
std::optional<int64_t> top_k_of(std::string_view name);

/// True if less is better.
bool is_loss_like(std::string_view metric);
/// True if a lower `metric` ("val/loss") is better: by the mode, or by its kind.
bool minimizes(const std::string& metric, const std::string& mode);

/// Refuses names that the target does not have, and keep_best or early_stopping on what is not
/// reported.
void check_metrics(const Recipe& recipe, const ModelInterface& interface, bool validates,
                   Violations& violations);

}  // namespace trainyard
