// src/data/table/csv_columns.h: the first pass over a table: the names of its columns and the kinds
// of their cells.
//
// Ingest reads a file twice. The first pass counts the kinds of cells in each column and keeps no
// cell; the second fills arrays of known type and size. So memory is bounded by the typed form, and
// all rows are known before a column's type is decided.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/data/dataset.h"
#include "src/data/problems.h"
#include "src/data/table/category_form.h"
#include "src/data/table/csv_cell.h"
#include "src/data/table/date.h"

namespace trainyard {

/// The range of some numbers.
struct NumberRange {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  bool exact = true;  // all numbers are the same in 32 bits

  void add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
    exact = exact && static_cast<double>(static_cast<float>(value)) == value;
  }
  void add(const NumberRange& other) {
    low = std::min(low, other.low);
    high = std::max(high, other.high);
    exact = exact && other.exact;
  }
  /// Returns what is subtracted from the numbers before they are stored in 32 bits: 0, unless the
  /// numbers are far from 0 and so close together that differences would be lost.
  double offset(bool whole) const;
};

/// The counts of a column in `date`.
struct DateCounts {
  DateOrders orders = kAllDateOrders;    // in which all cells are dates, apart from mistakes
  std::array<NumberRange, 4> days = {};  // by order: the first number that each date becomes
  bool times = false;                    // at least one date has a time
  bool zones = false, no_zones = false;  // times with a zone, and without one

  void add(std::string_view text);
  void add(const DateCounts& other);
  /// Returns the form of the dates. `wish` decides between orders that are both possible; nullopt
  /// if there is no wish either.
  std::optional<DateForm> form(std::string_view wish) const;
  double offset(DateOrder order) const;
};

struct ColumnCounts {
  int64_t missing = 0;  // as numbers
  int64_t marked = 0;   // of these, the ones that are texts if the column holds texts: "NA"
  int64_t numbers = 0;
  int64_t not_finite = 0;
  int64_t texts = 0;
  bool whole = true;                         // all numbers are whole
  bool bytes = true;                         // all numbers are whole and in 0..255
  NumberRange range;                         // of the numbers
  BooleanWords booleans = kAllBooleanWords;  // to which all numbers and texts belong
  std::set<std::string> units;  // of a column in `numbers`: the different units, at most kUnitsMax

  /// Returns the form of the column's categories, or of its classes.
  CategoryForm form() const;
  double offset() const { return range.offset(whole); }
};

/// More than one unit is a mistake, which is reported with two of them.
inline constexpr size_t kUnitsMax = 8;

struct CsvScan {
  std::vector<std::string> names;
  std::vector<ColumnCounts> counts;         // by column
  std::map<std::string, DateCounts> dates;  // by name of a column in `date`
  std::set<std::string> target_values;      // the first kTargetValuesMax + 1 different values
  int64_t rows = 0;
  int64_t skipped_rows = 0;   // rows without a target that the options skip; not part of `rows`
  int64_t skipped_marks = 0;  // skipped rows with a target such as "NA", which may be a class
  // If threads read the file in blocks: the offset in bytes at which the rows begin, and the number
  // of rows before each block. Else 0 and empty.
  int64_t rows_begin = 0;
  std::vector<int64_t> block_rows;
};

/// A target with more different whole numbers is numeric instead of classes.
inline constexpr size_t kTargetValuesMax = 20;

void count_cell(const Cell& cell, ColumnCounts& counts);
/// Reads and counts a cell of a column in `numbers`.
void count_spelled(const CellReader& cells, std::string_view text, ColumnCounts& counts);
/// Reads a cell that should be a number, counts it, and returns it.
Cell count_text(const CellReader& cells, std::string_view text, ColumnCounts& counts);
/// Returns the class that a target's cell means: "1" for "1.0".
std::string target_value(const Cell& cell, std::string_view text);
/// Adds a value of the target to `values` unless this has more than kTargetValuesMax values
/// already.
void note_target_value(const Cell& cell, std::string_view text, std::set<std::string>& values);

/// Returns the columns' names from the header's fields. As pandas does, it names a column without a
/// name by its position, "Unnamed: 3", and adds ".1" to a name that is taken. Refuses names that
/// are too long or not UTF-8, and repeated numbers, which are rather a row of data.
Result<std::vector<std::string>> header_names(std::span<const std::string_view> fields,
                                              const std::string& what);
/// Adds or removes a nameless column of the header so that it has as many as the first row: adds
/// one if the row has one field more, at the end if the row's last field is empty, as a separator
/// at the end of a line makes it, else at the beginning for the names of rows. Removes an empty
/// last one if the row has one field less. Does nothing for other rows.
void fit_header(std::span<const std::string_view> first_row, std::vector<std::string>& header);
/// Returns whether header_names() has generated the name: "Unnamed: 3".
bool is_generated_name(std::string_view name);
/// Returns the names of columns without a header: "c0", "c1", ...
std::vector<std::string> numbered_names(size_t count);

/// Returns "1 field" or "3 fields".
std::string field_count(size_t count);

/// Returns true for rows that the options skip because their target is missing.
bool is_skipped(const CsvOptions& options, const CellReader& cells,
                std::span<const std::string_view> fields, size_t target);

/// Makes the first pass. `what` is the source's role; `known` is as in open_table(). Refuses files
/// without rows (or without a row that has a target), rows with a wrong number of fields, and
/// broken quoting; one error lists the first 16 problems.
Result<CsvScan> scan_csv(const CsvOptions& options, const CellReader& cells,
                         const std::filesystem::path& path, const std::string& what,
                         const TableThreads& threads, const std::vector<std::string>& known = {});

}  // namespace trainyard
