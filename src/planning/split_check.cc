#include "src/planning/split_check.h"

#include <algorithm>
#include <optional>
#include <string>

#include "src/base/text.h"
#include "src/base/unicode.h"

namespace trainyard {
namespace {

constexpr const char* kSplitGroup = "recipe.split.group";
constexpr const char* kSplitTime = "recipe.split.time";
constexpr const char* kSplitFolds = "recipe.split.folds";
constexpr const char* kSplitFold = "recipe.split.fold";

std::string listed(const std::vector<std::string>& columns) {
  constexpr size_t kListedMax = 8;
  std::string text;
  for (size_t i = 0; i < std::min(columns.size(), kListedMax); ++i) {
    text += (i > 0 ? ", " : "") + quoted_value(columns[i]);
  }
  if (columns.size() > kListedMax) text += ", ... " + quoted_value(columns.back());
  return text;
}

/// Returns why the dataset's rows cannot be split by a column, which it has not kept.
std::string why_not_kept(const DatasetSchema& schema, const std::string& column,
                         const std::string& option) {
  const std::vector<std::string>& columns = schema.source_columns;
  if (columns.empty()) {
    return quoted_value(column) +
           " cannot be used: only tables, CSV and JSON lines, have columns "
           "by which rows are split; remove it";
  }
  if (std::ranges::find(columns, column) == columns.end()) {
    const std::optional<std::string> near = nearest_name(column, columns);
    return quoted_value(column) + " is not a column of the dataset" +
           (near ? "; did you mean " + quoted_value(*near) + "?"
                 : "; the columns are " + listed(columns));
  }
  if (column == schema.target.name) {
    return quoted_value(column) + " is the target, expected another column";
  }
  return "the dataset was made without the values of " + quoted_value(column) +
         " for splits; make it again with the option " + option + ": " + column +
         " of csv or jsonl, or give the file as dataset.path, and the column is kept";
}

void check_column(const DatasetSchema& schema, const std::string& wanted, const std::string& kept,
                  const char* field, Violations& violations) {
  const std::string column = nfc(wanted);  // as the dataset's names are
  if (column.empty() || column == kept) return;
  const std::string option = std::string(field).substr(std::string(field).rfind('.') + 1);
  violations.add("FIELD_OUT_OF_RANGE", field, why_not_kept(schema, column, option));
}

void check_folds(const Recipe& r, const DatasetSchema& schema, Violations& violations) {
  const std::string folds = std::to_string(r.split_folds);
  if (r.validation_split > 0) {
    violations.add("FIELD_CONFLICT", "recipe.validation_split",
                   "has no effect with recipe.split.folds: each fold holds out 1 of " + folds +
                       " parts; remove one of them");
  }
  if (r.split_fold == 0) {
    violations.add("FIELD_REQUIRED", kSplitFold,
                   "is missing, expected 1.." + folds +
                       "; a job file without it becomes an array with a member for each fold");
  } else if (r.split_fold > r.split_folds) {
    violations.add("FIELD_OUT_OF_RANGE", kSplitFold,
                   std::to_string(r.split_fold) + " is out of range, expected 1.." + folds);
  }
  if (!r.split_time.empty()) {
    violations.add("FIELD_CONFLICT", kSplitFolds,
                   "does not go with recipe.split.time: all folds but the last would be trained on "
                   "rows later than those that they are measured on; use recipe.validation_split");
  }
  if (schema.stream()) {
    violations.add("FIELD_UNSUPPORTED", kSplitFolds,
                   "has no effect on one text, whose end is held out; use recipe.validation_split");
    return;
  }
  const bool by_group = !r.split_group.empty() && nfc(r.split_group) == schema.split.group;
  const int64_t parts = by_group ? std::ssize(schema.split.group_rows) : schema.train_rows;
  if (r.split_folds <= parts) return;
  violations.add("FIELD_OUT_OF_RANGE", kSplitFolds,
                 folds + " is more than the " + std::to_string(parts) +
                     (by_group           ? " groups of " + quoted_value(r.split_group)
                      : schema.documents ? std::string(" documents")
                                         : std::string(" rows")) +
                     ", expected 2.." + std::to_string(parts));
}

void check_groups(const Recipe& r, const DatasetSchema& schema, Violations& violations) {
  if (r.split_group.empty() || nfc(r.split_group) != schema.split.group) return;
  if (schema.split.group_rows.size() > 1) return;
  violations.add("FIELD_OUT_OF_RANGE", kSplitGroup,
                 quoted_value(r.split_group) +
                     " has the same value in all rows, expected a column "
                     "with at least 2 groups");
}

}  // namespace

void check_split(const Recipe& r, const DatasetSchema& schema, Violations& violations) {
  if (!r.split_group.empty() && !r.split_time.empty()) {
    violations.add("FIELD_CONFLICT", "recipe.split", "has both group and time; expected only one");
  }
  const bool by_column = !r.split_group.empty() || !r.split_time.empty();
  if (by_column && !r.holds_out_rows()) {
    violations.add("FIELD_UNUSED", r.split_group.empty() ? kSplitTime : kSplitGroup,
                   "has no effect without validation rows; set recipe.validation_split, such as "
                   "0.2" +
                       std::string(r.split_group.empty() ? "" : ", or recipe.split.folds"));
  }
  if (r.split_fold > 0 && r.split_folds == 0) {
    violations.add("FIELD_UNUSED", kSplitFold,
                   "has no effect without recipe.split.folds; set both");
  }
  check_column(schema, r.split_group, schema.split.group, kSplitGroup, violations);
  check_column(schema, r.split_time, schema.split.time, kSplitTime, violations);
  check_groups(r, schema, violations);
  if (r.split_folds >= 2) check_folds(r, schema, violations);
}

}  // namespace trainyard
