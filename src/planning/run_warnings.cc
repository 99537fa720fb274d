#include "src/planning/run_warnings.h"

#include <algorithm>

#include "src/base/text.h"

namespace trainyard {
namespace {

// The most parameters per training row without a warning. Networks with far more than one parameter
// per row learn well; these limits are far beyond what works, such as hundreds of rows of a table
// for hundreds of thousands of parameters, or a thousand images for a ResNet-18 without initial
// weights.
constexpr int64_t kParametersPerRow = 500;
// for images and texts, which contain more information than a row of a table
constexpr int64_t kParametersPerSample = 10000;

/// Returns text such as " Column 'day' makes 6610 of the 6620 inputs, ..." if one column makes at
/// least half of the inputs, else empty.
std::string widest_column(const DatasetSchema& schema) {
  const ColumnSchema* widest = nullptr;
  int64_t inputs = 0;
  for (const ColumnSchema& column : schema.columns) {
    const bool categories = column.kind == ColumnSchema::Kind::kCategorical;
    inputs += categories ? std::ssize(column.categories) : 1;
    if (categories && (widest == nullptr || column.categories.size() > widest->categories.size())) {
      widest = &column;
    }
  }
  if (widest == nullptr || 2 * std::ssize(widest->categories) < inputs) return "";
  return " Column " + quoted_value(widest->name) + " makes " +
         std::to_string(widest->categories.size()) + " of the " + std::to_string(inputs) +
         " inputs, one for each category.";
}

}  // namespace

std::vector<std::string> run_warnings(const RunPlan& plan, const Recipe& recipe,
                                      const DatasetSchema& schema) {
  std::vector<std::string> warnings;
  for (const DataWarning& warning : schema.warnings) warnings.push_back(warning.message);
  const bool table = schema.kind == DatasetSchema::Kind::kTabular;
  const int64_t each = table ? kParametersPerRow : kParametersPerSample;
  const bool trains_from_scratch = recipe.initial_weights.source.empty();
  if (trains_from_scratch && !schema.stream() && plan.train_rows > 0 &&
      plan.trained_parameter_count / each >= plan.train_rows) {
    warnings.push_back("the model has " + std::to_string(plan.trained_parameter_count) +
                       " parameters to learn from " + std::to_string(plan.train_rows) +
                       " rows, which it can memorize (overfit)." +
                       (table ? widest_column(schema) : std::string()) +
                       " Make the model smaller, or train on more rows.");
  }
  return warnings;
}

}  // namespace trainyard
