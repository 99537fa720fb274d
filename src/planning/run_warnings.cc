#include "src/planning/run_warnings.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "src/base/text.h"
#include "src/data/limits.h"
#include "src/data/load/packing.h"
#include "src/data/load/split.h"
#include "src/data/warnings.h"

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

/// Returns the warning about classes with few rows that remain for training. If groups or times are
/// held out, only the data tells how many do (src/train/trainer.cc).
std::optional<DataWarning> find_rare_training_classes(const DatasetSchema& schema,
                                                      const SplitRule& rule) {
  if (!splits_by_class(schema, rule)) return std::nullopt;
  const std::vector<int64_t>& all = schema.statistics->classes;
  // For more classes the counts would take longer than the rest of a plan.
  if (std::ssize(all) > kClassesListedMax) return find_rare_classes(schema, all);
  return find_rare_classes(schema, count_training_classes(schema, rule));
}

/// Returns a warning if the moving average of the weights still consists mostly of the weights of
/// the first step when the job ends.
std::optional<std::string> find_slow_average(const RunPlan& plan, const Recipe& recipe) {
  constexpr double kFirstShareMax = 0.1, kFirstShareAdvised = 0.01;
  if (recipe.ema_decay <= 0 || plan.steps_total < 2) return std::nullopt;
  const auto steps = static_cast<double>(plan.steps_total - 1);
  const double first = std::pow(recipe.ema_decay, steps);
  if (first <= kFirstShareMax) return std::nullopt;
  const double advised = std::floor(std::pow(kFirstShareAdvised, 1 / steps) * 1e4) / 1e4;
  return "with recipe.ema.decay " + short_number(recipe.ema_decay) + " and " +
         std::to_string(plan.steps_total) + " steps, " + std::to_string(std::lround(100 * first)) +
         " % of the averaged weights, which are evaluated and become the model, are those after "
         "the first step: the average has hardly moved. Use a decay of at most " +
         short_number(advised) + ", train more steps, or leave out recipe.ema.";
}

/// Returns a warning if documents are longer than a row.
std::optional<std::string> find_cut_documents(const Recipe& recipe, const DatasetSchema& schema) {
  const DocumentsSchema& documents = *schema.documents;
  const int64_t length =
      recipe.context_length > 0 ? recipe.context_length : default_context_length(documents);
  const auto count = [&](const DocumentCounts& counts) {
    std::pair<int64_t, int64_t> cut;  // documents, tokens
    for (auto it = counts.lengths.upper_bound(length); it != counts.lengths.end(); ++it) {
      cut.first += it->second;
      cut.second += it->second * (it->first - length);
    }
    return cut;
  };
  const auto [train, train_tokens] = count(documents.train);
  const auto [test, test_tokens] = count(documents.test);
  if (train + test == 0) return std::nullopt;
  const int64_t all = documents.train.documents() + documents.test.documents();
  const int64_t longest = std::max(documents.train.longest(), documents.test.longest());
  return std::to_string(train + test) + " of " + std::to_string(all) +
         " documents are longer than recipe.context_length " + std::to_string(length) +
         " and are cut: " + std::to_string(train_tokens + test_tokens) +
         " tokens at their ends are never seen. The longest has " + std::to_string(longest) +
         " tokens; 99 % have at most " + std::to_string(documents.train.quantile(0.99)) + ".";
}

}  // namespace

std::vector<std::string> run_warnings(const RunPlan& plan, const Recipe& recipe,
                                      const DatasetSchema& schema) {
  std::vector<std::string> warnings;
  for (const DataWarning& warning : schema.warnings) {
    if (warning.key != kRareClasses) warnings.push_back(warning.message);
  }
  if (const auto rare = find_rare_training_classes(schema, recipe.split_rule())) {
    warnings.push_back(rare->message);
  }
  if (auto average = find_slow_average(plan, recipe)) warnings.push_back(*std::move(average));
  const bool table = schema.kind == DatasetSchema::Kind::kTabular;
  const int64_t each = table ? kParametersPerRow : kParametersPerSample;
  const bool trains_from_scratch = recipe.initial_weights.source.empty();
  if (schema.documents) {
    if (auto cut = find_cut_documents(recipe, schema)) warnings.push_back(*std::move(cut));
  }
  if (trains_from_scratch && !schema.next_token() && plan.train_rows > 0 &&
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
