#include "src/data/table/column_facts.h"

#include <algorithm>

#include "src/base/result.h"
#include "src/base/text.h"
#include "src/data/table/column_names.h"

namespace trainyard {
namespace {

constexpr double kIdentifierShare = 0.9;  // least share of different texts in an identifier
constexpr double kNearlyAll = 0.99;       // least share of different numbers in an identifier
constexpr double kCategoryRowsMin = 2;    // least mean number of rows per category
constexpr double kSentenceWords = 4;
// A few different dates may well be categories, for example days of measurements.
constexpr int64_t kDatesMin = 10;

double share_of_distinct(const ColumnFacts& c) {
  return static_cast<double>(*c.distinct) / static_cast<double>(c.present());
}

std::string of_rows(int64_t count, int64_t rows) {
  return std::to_string(count) + " of " + std::to_string(rows);
}

std::string such_as(const ColumnFacts& c) {
  return c.example.empty() ? "" : ", such as " + quoted_value(c.example);
}

/// Returns the path of an option, for messages: "dataset.csv.ignore".
std::string field_of(std::string_view options, const char* field) {
  return "dataset." + std::string(options) + "." + field;
}

/// Returns advice for texts that were read as categories: " Or list it in dataset.csv.date ...".
std::string or_read_as(std::string_view options, const char* field, const char* effect) {
  if (options.empty()) return "";
  return " Or list it in " + field_of(options, field) + " " + effect;
}

}  // namespace

std::string leave_out(std::string_view options) {
  if (options.empty()) return "Leave it out of the file.";
  return "Leave it out: list it in " + field_of(options, "ignore") + ".";
}

// Whole numbers that are nearly all different may be amounts, scores and years as well as
// identifiers, even if they rise from row to row. They identify rows if the column's name says so,
// or if they count the rows under a name that does not explain it.
bool may_identify_rows(const ColumnFacts& c) {
  if (!c.whole) return false;
  return may_name_rows(c.name) || (c.counts_rows && !may_count_up(c.name));
}

std::optional<ColumnTrap> find_column_trap(const ColumnFacts& c) {
  using Kind = ColumnFacts::Kind;
  if (c.rows == 0) return std::nullopt;
  if (c.present() <= 0) return ColumnTrap::kEmpty;
  if (!c.distinct) return std::nullopt;
  // A missing number is replaced by the mean, which is the constant itself. A missing category is a
  // different input, so the column is not constant.
  if (*c.distinct == 1 && c.rows > 1 && (c.missing == 0 || c.kind == Kind::kNumeric)) {
    return ColumnTrap::kConstant;
  }
  if (c.kind == Kind::kCategorical && c.dates && *c.distinct > kDatesMin) {
    return ColumnTrap::kDates;
  }
  if (c.present() < kRowsToJudge) return std::nullopt;
  if (c.kind == Kind::kNumeric) {
    if (!may_identify_rows(c) || share_of_distinct(c) < kNearlyAll) return std::nullopt;
    return ColumnTrap::kIdentifier;
  }
  const bool rare = share_of_distinct(c) * kCategoryRowsMin > 1;
  if (rare && c.words_mean >= kSentenceWords) return ColumnTrap::kFreeText;
  if (share_of_distinct(c) >= kIdentifierShare) return ColumnTrap::kIdentifier;
  if (rare) return ColumnTrap::kManyCategories;
  return std::nullopt;
}

std::string_view key_of(ColumnTrap trap) {
  switch (trap) {
    case ColumnTrap::kEmpty:
      return "EMPTY_COLUMN";
    case ColumnTrap::kConstant:
      return "CONSTANT_COLUMN";
    case ColumnTrap::kDates:
      return "DATES_AS_CATEGORIES";
    case ColumnTrap::kFreeText:
      return "TEXT_AS_CATEGORIES";
    case ColumnTrap::kIdentifier:
      return "IDENTIFIER_COLUMN";
    case ColumnTrap::kManyCategories:
      return "MANY_CATEGORIES";
  }
  return "";
}

int64_t count_of(ColumnTrap trap, const ColumnFacts& c) {
  const bool rows = trap == ColumnTrap::kEmpty || trap == ColumnTrap::kConstant;
  return rows ? c.rows : c.distinct.value_or(0);
}

std::string describe(ColumnTrap trap, const ColumnFacts& c, std::string_view options) {
  const std::string begin = "column " + quoted_value(c.name) + " ";
  const std::string differ =
      of_rows(c.distinct.value_or(0), c.present()) + " values differ" + such_as(c);
  const std::string categories =
      begin + "is read as categories, one for each different text, and " + differ;
  switch (trap) {
    case ColumnTrap::kEmpty:
      return begin + "has no value in any of " + std::to_string(c.rows) +
             " rows: it has no information for the model. " + leave_out(options);
    case ColumnTrap::kConstant:
      return begin + "has the same value in all " +
             (c.missing == 0 ? std::to_string(c.rows) + " rows"
                             : "rows that have one, " + of_rows(c.present(), c.rows)) +
             (c.example.empty() ? "" : ", " + quoted_value(c.example)) +
             ": it has no information for the model. " + leave_out(options);
    case ColumnTrap::kDates:
      return categories + ": a day that training did not see has no information for the model. " +
             leave_out(options) + or_read_as(options, "date", "and its dates are read as numbers.");
    case ColumnTrap::kFreeText:
      return categories + ": their words are ignored. " + leave_out(options) +
             or_read_as(options, "text", "and the model learns from its words instead of columns.");
    case ColumnTrap::kIdentifier:
      return (c.kind == ColumnFacts::Kind::kNumeric
                  ? begin + "looks like an ID or a count of the rows: " + differ
                  : categories + ", as IDs do") +
             ": a model can memorize them, but new rows have other values. " + leave_out(options);
    case ColumnTrap::kManyCategories:
      return categories + ": most categories have one row to learn from. " + leave_out(options) +
             " Or store fewer, broader values in it.";
  }
  return "";
}

}  // namespace trainyard
