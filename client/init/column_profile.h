// client/init/column_profile.h: one pass over the first rows of a table, before the target is
// known: how each column would be read, and which problems its values have.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include "src/base/result.h"
#include "src/data/dataset.h"
#include "src/data/table/column_facts.h"
#include "src/data/table/csv_columns.h"
#include "src/data/table/date.h"

namespace trainyard::init {

/// The mean number of words above which text is worth more than a few columns of other kinds.
inline constexpr double kLongTextWords = 8;

/// How the numbers or the dates of a column follow each other from row to row.
struct NumberOrder {
  bool counts_rows = true;  // as in ColumnFacts
  bool rises = true;        // each is above the one before it
  bool never_falls = true;
  std::optional<double> last = {};

  void add(double value, bool first_row);
};

struct ColumnProfile {
  std::string name;
  bool may_identify_rows = false;  // may_name_rows() (src/data/table/column_names.h)
  ColumnCounts counts;
  NumberOrder order;
  std::set<std::string> values;  // the different values, at most kTargetValuesMax + 1
  // The different texts, at most kCategoriesMax + 1. Of numbers that cannot be identifiers, fewer
  // are kept.
  std::unordered_set<std::string> texts;
  int64_t dates = 0;  // texts that are dates as src/data/table/date.h reads them
  DateOrders date_orders = kAllDateOrders;  // in which all of these are dates
  int64_t other_dates = 0;                  // texts that look like other dates
  int64_t other_numbers = 0;   // texts that look like numbers with units or separators: $1,200
  int64_t decimal_commas = 0;  // texts such as 3,14
  double words = 0;            // total number in all texts
  std::string example;         // the first text
  bool spelled = false;        // listed in `numbers`
  std::map<std::string, int64_t> marks;  // cells such as "NA", which are missing as numbers only
  std::set<std::string> others;          // the different texts that are no numbers, a few of them
  std::string no_category;  // why the first text that cannot name a category cannot; empty: none

  int64_t present() const { return counts.numbers + counts.not_finite + counts.texts; }
  double words_mean() const { return counts.texts == 0 ? 0 : words / double(counts.texts); }
  /// Returns whether nearly all texts are: dates in another order; numbers with units, separators
  /// or a decimal comma; numbers with a decimal comma. The first two are false if the column has
  /// only few different texts, such as "18-25".
  bool has_other_dates() const;
  bool has_other_numbers() const;
  bool has_decimal_commas() const;
  /// Returns whether the column identifies the rows: whole numbers that nearly all differ, under a
  /// name that says so, or that count the rows. Counts the cells' texts, because an ingest's
  /// float32 makes large numbers equal.
  bool identifies_rows() const;
  /// Returns whether an ingest would read the column as numbers.
  bool numeric() const {
    return counts.numbers + counts.not_finite >= counts.texts &&
           counts.form() != CategoryForm::kBooleans;
  }
  /// Returns the facts of a column of texts, like those that src/data/warnings.cc derives from a
  /// dataset.
  ColumnFacts facts(int64_t rows) const;
};

struct TableProfile {
  std::vector<ColumnProfile> columns;
  int64_t rows = 0;
};

/// Reads the table, without the rows that the options skip because they have no target. Rows with a
/// different number of fields are skipped too; the ingest reports them. Errors are those of
/// open_table() and of malformed records. If the target is text, "None" is one of its classes.
Result<TableProfile> profile_columns(const CsvOptions& options, const std::filesystem::path& path,
                                     bool target_is_text = false);

}  // namespace trainyard::init
