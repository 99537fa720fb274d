#include "src/train/undefined_metrics.h"

#include <algorithm>
#include <cmath>

#include "src/base/text.h"
#include "src/data/load/split.h"

namespace trainyard {
namespace {

/// Returns why a metric has no value for rows with these classes; empty if it has one.
std::string why_undefined(const std::string& name, const DatasetSchema& schema,
                          std::span<const int64_t> class_rows) {
  const auto has_rows = [](int64_t count) { return count > 0; };
  const auto classes = std::ranges::count_if(class_rows, has_rows);
  if (classes == 0) return "none of the rows counts, since model.loss ignores their class";
  if (classes > 1 || name != "roc_auc") return "";
  const auto only = std::ranges::find_if(class_rows, has_rows) - class_rows.begin();
  const auto k = static_cast<size_t>(only);
  return (class_rows[k] == 1 ? "the only row is"
                             : "all " + std::to_string(class_rows[k]) + " rows are") +
         " of class " + quoted_value(schema.target.classes[k]) + ", but it compares classes";
}

/// R2 divides by the deviations of the targets.
std::vector<UndefinedMetric> find_undefined_of_numbers(const Partition& partition,
                                                       std::span<const int64_t> rows) {
  const auto target = [&](int64_t row) {
    return partition.target_numeric[static_cast<size_t>(row)];
  };
  const auto differs = [&](int64_t row) { return target(row) != target(rows.front()); };
  if (rows.empty() || std::ranges::any_of(rows, differs)) return {};
  return {{"r2",
           (rows.size() == 1 ? "the only row has the target "
                             : "all " + std::to_string(rows.size()) + " rows have the target ") +
               short_number(static_cast<double>(target(rows.front()))) +
               "; it is reported as 1 if all predictions are exact, else as 0",
           true}};
}

}  // namespace

std::vector<UndefinedMetric> find_undefined_metrics(const Evaluation& e,
                                                    const DatasetSchema& schema,
                                                    const Partition& partition,
                                                    std::span<const int64_t> rows,
                                                    const Objective& objective) {
  if (objective.interface.target == TargetForm::kNumeric) {
    return find_undefined_of_numbers(partition, rows);
  }
  std::vector<UndefinedMetric> undefined;
  const auto is_nan = [](const auto& value) { return std::isnan(value.second); };
  if (objective.interface.target != TargetForm::kClass || std::ranges::none_of(e.values, is_nan)) {
    return undefined;
  }
  std::vector<int64_t> class_rows = count_classes(schema, partition, rows);
  const int64_t ignored = objective.ignored_label();
  if (ignored >= 0 && ignored < std::ssize(class_rows)) {
    class_rows[static_cast<size_t>(ignored)] = 0;
  }
  for (const auto& [name, value] : e.values) {
    std::string why = std::isnan(value) ? why_undefined(name, schema, class_rows) : "";
    if (!why.empty()) undefined.push_back({name, std::move(why), false});
  }
  return undefined;
}

}  // namespace trainyard
