#include "src/train/baseline.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "src/base/check.h"
#include "src/base/text.h"
#include "src/train/metric_accumulator.h"

namespace trainyard {
namespace {

// A class without training rows counts as half a row, since the logarithm of its share must be
// finite.
constexpr double kRowsMin = 0.5;
// The shares of right answers, or of explained variance, from which a model is nearly perfect, and
// up to which a constant answer leaves something to learn.
constexpr double kPerfectMin = 0.999;
constexpr double kEasyMin = 0.95;
constexpr int64_t kFewRows = 30;
constexpr double kDivergedTimes = 10;
constexpr double kDivergedBy = 1;  // a loss near 0 can grow tenfold by chance

double value_of(const Evaluation& e, std::string_view name) {
  for (const auto& [key, value] : e.values) {
    if (key == name) return value;
  }
  TRAINYARD_CHECK(false, std::string(name) + " was not evaluated");
}

}  // namespace

std::optional<Baseline> Baseline::of(const Objective& objective, const Partition& train,
                                     std::span<const int64_t> rows) {
  const ModelInterface& interface = objective.interface;
  Baseline baseline(objective);
  if (interface.target == TargetForm::kNumeric) {
    baseline.output_ = {0};  // the mean, since targets are standardized
    return baseline;
  }
  // With more classes than this, storing the scores of each row would be too expensive.
  if (interface.target != TargetForm::kClass || interface.outputs > kScoresReadMax) {
    return std::nullopt;
  }
  std::vector<double> counts(static_cast<size_t>(interface.classes()));
  for (const int64_t row : rows) {
    const int32_t label = train.target_class[static_cast<size_t>(row)];
    if (label != objective.ignored_label()) ++counts[static_cast<size_t>(label)];
  }
  baseline.largest_ = static_cast<size_t>(std::ranges::max_element(counts) - counts.begin());
  for (double& count : counts) count = std::log(std::max(count, kRowsMin));
  if (interface.outputs == 1) {  // two classes with a single logit
    baseline.output_ = {static_cast<float>(counts[1] - counts[0])};
  } else {
    baseline.output_.assign(counts.begin(), counts.end());
  }
  return baseline;
}

Evaluation Baseline::evaluate(const Partition& partition, std::span<const int64_t> rows,
                              const Preprocessing& preprocessing,
                              const std::vector<std::string>& names,
                              const std::function<void()>& progressed) const {
  constexpr size_t kRowsBetweenSigns = 1024;
  MetricAccumulator metrics(names, objective_);
  for (size_t i = 0; i < rows.size(); ++i) {
    if (progressed && i % kRowsBetweenSigns == 0) progressed();
    const auto at = static_cast<size_t>(rows[i]);
    if (objective_.interface.target == TargetForm::kClass) {
      metrics.add_scores(output_, partition.target_class[at]);
      continue;
    }
    const double target = partition.target_numeric[at];
    metrics.add_number(0, (target - preprocessing.target_mean) / preprocessing.target_std,
                       preprocessing.target_mean, target);
  }
  Evaluation e;
  for (const std::string& name : names) {
    if (name != "confusion_matrix") e.values.emplace_back(name, metrics.value(name));
  }
  return e;
}

std::optional<std::string> Baseline::compare(const std::string& prefix, const Evaluation& model,
                                             const Evaluation& baseline,
                                             const TargetSchema& target) const {
  const bool classes = objective_.interface.target == TargetForm::kClass;
  const std::string metric = classes ? "accuracy" : "rmse";
  const double own = value_of(model, metric), other = value_of(baseline, metric);
  const double own_loss = value_of(model, "loss"), other_loss = value_of(baseline, "loss");
  if (std::isnan(other) || std::isnan(other_loss))
    return std::nullopt;  // no row has a label that counts
  // If the model gives NaN, the comparisons are false, so it does not count as better.
  const bool better = (classes ? own > other : own < other) || own_loss < other_loss;
  if (better) return std::nullopt;
  return "the model is no better than a constant prediction that ignores the inputs: " + prefix +
         "/" + metric + " " + short_number(own) + ", versus " + short_number(other) + " if " +
         (classes ? "the largest class, " + quoted_value(target.classes.at(largest_)) + ","
                  : "the mean") +
         " is predicted for all rows; " + prefix + "/loss " + short_number(own_loss) + ", versus " +
         short_number(other_loss) +
         ". Try another recipe.optimizer.learning_rate, more epochs, or more informative features.";
}

std::optional<std::string> Baseline::check_perfection(const std::string& prefix,
                                                      const Evaluation& model,
                                                      const Evaluation& baseline) const {
  const bool classes = objective_.interface.target == TargetForm::kClass;
  const std::string metric = classes ? "accuracy" : "rmse";
  const double own = value_of(model, metric), other = value_of(baseline, metric);
  const double ratio = own / other;
  const bool perfect = classes ? own >= kPerfectMin && other < kEasyMin
                               : other > 0 && 1 - ratio * ratio >= kPerfectMin;
  if (!perfect) return std::nullopt;
  return prefix + "/" + metric + " " + short_number(own) + " is nearly perfect (" +
         short_number(other) +
         " without the inputs), which is rare for real data. Check that no column is computed from "
         "the target or becomes known only with it, and that no held-out row belongs together with "
         "a training row.";
}

std::optional<std::string> check_row_count(const std::string& prefix, int64_t rows) {
  if (rows < 1 || rows >= kFewRows) return std::nullopt;
  return "the " + prefix + " metrics rest on " + std::to_string(rows) +
         (rows == 1 ? " row" : " rows") +
         ", so that single rows decide them. Compare several seeds (recipe.seed), or hold out more "
         "rows (recipe.validation_split).";
}

std::optional<std::string> check_divergence(double first_loss, const std::vector<double>& losses,
                                            double learning_rate) {
  if (losses.empty()) return std::nullopt;
  const double last =
      std::accumulate(losses.begin(), losses.end(), 0.0) / static_cast<double>(losses.size());
  if (!(last > kDivergedTimes * first_loss && last > first_loss + kDivergedBy)) return std::nullopt;
  return "the training loss ended at " + short_number(last) + ", far above the " +
         short_number(first_loss) +
         " of the first step: training diverged. Try a lower recipe.optimizer.learning_rate "
         "(currently " +
         short_number(learning_rate) + ").";
}

}  // namespace trainyard
