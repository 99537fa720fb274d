// client/init/column_look.h: one pass over the first rows of a table, before anybody has said which
// column is the target: what each column would be read as, and which trap it is.
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include "src/base/result.h"
#include "src/data/dataset.h"
#include "src/data/table/column_facts.h"
#include "src/data/table/csv_columns.h"

namespace trainyard::init {

/// Text that is worth more than a few columns of other kinds, by its mean number of words.
inline constexpr double kLongTextWords = 8;

struct ColumnLook {
  std::string name;
  ColumnCounts counts;
  std::set<std::string> values;           // the first kTargetValuesMax + 1 different ones
  std::unordered_set<std::string> texts;  // different ones, kCategoriesMax + 1 at most
  int64_t dates = 0;           // texts that are dates as src/data/table/date.h reads them
  int64_t other_dates = 0;     // that look like dates in another order: 31.12.2026
  int64_t other_numbers = 0;   // that look like numbers with units or separators: $1,200
  int64_t decimal_commas = 0;  // 3,14
  double words = 0;            // of all texts
  std::string example;         // the first text

  int64_t present() const { return counts.numbers + counts.not_finite + counts.texts; }
  double words_mean() const { return counts.texts == 0 ? 0 : words / double(counts.texts); }
  /// What nearly all texts are: dates in another order; numbers with units, separators or a decimal
  /// comma, unless they are few, such as "18-25"; numbers with a decimal comma.
  bool has_other_dates() const;
  bool has_other_numbers() const;
  bool has_decimal_commas() const;
  /// Whole numbers that nearly all differ, in a column that is named as identifiers are. Told by
  /// the cells: an ingest's numbers have 32 bits, in which large ones become equal.
  bool counts_rows() const;
  /// True where an ingest would read the column as numbers.
  bool numeric() const { return counts.numbers + counts.not_finite >= counts.texts; }
  /// Of a column of texts, as src/data/warnings.cc gathers them from a dataset.
  ColumnFacts facts(int64_t rows) const;
};

struct TableLook {
  std::vector<ColumnLook> columns;
  int64_t rows = 0;
};

/// Rows with another number of fields are passed over: the ingest names them. Refusals: those of
/// open_table() and of broken records.
Result<TableLook> look_at_columns(const CsvOptions& options, const std::filesystem::path& path);

/// Names that people give to what they want to predict, the likeliest first.
bool is_target_name(std::string_view name);

/// Which column to predict if nobody says it: one with such a name, else the last one that is fit
/// for it; nothing if none is.
std::optional<size_t> choose_target(const TableLook& table);

}  // namespace trainyard::init
