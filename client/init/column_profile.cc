#include "client/init/column_profile.h"

#include <algorithm>
#include <cctype>
#include <memory>

#include "src/base/grouped.h"
#include "src/base/text.h"
#include "src/data/limits.h"
#include "src/data/table/column_names.h"
#include "src/data/table/csv_cell.h"
#include "src/data/table/date.h"
#include "src/data/table/number_spelling.h"
#include "src/data/table/table_reader.h"
#include "src/data/text/word_count.h"

namespace trainyard::init {
namespace {

// a column with at most this many different texts may hold names of ranges, such as "18-25"
constexpr size_t kCodesMax = 20;

bool is_nearly_all(int64_t part, int64_t all) {
  return all > 0 && static_cast<double>(part) >= 0.9 * static_cast<double>(all);
}

// The number of different numbers that are kept: enough to tell a measurement from a setting, and
// in case the column turns out to hold text.
constexpr size_t kNumbersKeptMax = 256;

/// Returns whether the text looks like a date in another order, "31.12.2026" or "12/31/26": numbers
/// separated by one kind of mark.
bool is_other_date(std::string_view text) {
  size_t marks = 0, digits = 0;
  for (const char c : text.substr(0, text.find(' '))) {
    if (is_digit(c)) {
      ++digits;
    } else if (c == '.' || c == '/' || c == '-') {
      ++marks;
    } else {
      return false;
    }
  }
  return marks == 2 && digits >= 4 && digits <= 8 && is_digit(text.front());
}

/// Returns whether the text is a number with a decimal comma, "3,14". "3,141" is not, since it may
/// mean three thousand.
bool has_decimal_comma(std::string_view text) {
  if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
  const size_t comma = text.find(',');
  if (comma == text.npos || comma == 0 || comma + 1 == text.size()) return false;
  const auto digits = [](std::string_view part) { return std::ranges::all_of(part, is_digit); };
  const std::string_view fraction = text.substr(comma + 1);
  return fraction.size() != 3 && digits(text.substr(0, comma)) && digits(fraction);
}

/// Returns whether the text looks like a number with units or separators: "$1,200", "12 %",
/// "1'000.50", "5.2 kg". That is digits and separators, with a currency sign before or a short unit
/// after them. "A12" is a name.
bool is_other_number(std::string_view text) {
  const size_t first = text.find_first_of("0123456789");
  const size_t last = text.find_last_of("0123456789");
  if (first == text.npos || first > 4 || text.size() - last > 5) return false;
  const auto no_letter = [](char c) { return std::isalpha(static_cast<unsigned char>(c)) == 0; };
  return std::ranges::all_of(text.substr(0, first), no_letter) &&
         text.substr(first, last - first + 1).find_first_not_of("0123456789.,' ") == text.npos;
}

/// Returns why an ingest refuses the text as the name of a category; empty if it does not.
std::string why_no_category(std::string_view text) {
  if (text.size() > kNameBytesMax) {
    return "a text of " + grouped(static_cast<int64_t>(text.size())) + " bytes, more than the " +
           std::to_string(kNameBytesMax) + " of a category";
  }
  return is_utf8(text) ? "" : "a text that is not UTF-8";
}

/// Notes how the date follows the one before it, in the first order in which all dates are dates.
void note_date_order(std::string_view text, ColumnProfile& column) {
  for (const DateOrder order : kDateOrders) {
    if ((column.date_orders & bit_of(order)) == 0) continue;
    column.order.add(parse_date(text, order)->days(), false);
    return;
  }
}

void note_text(std::string_view text, ColumnProfile& column) {
  if (column.example.empty()) column.example = text;
  if (column.no_category.empty()) column.no_category = why_no_category(text);
  column.words += count_words(text);
  if (const DateOrders orders = possible_orders(text); orders != 0) {
    ++column.dates;
    column.date_orders = static_cast<DateOrders>(column.date_orders & orders);
    note_date_order(text, column);
  } else if (is_other_date(text)) {
    ++column.other_dates;
  } else if (has_decimal_comma(text)) {
    ++column.decimal_commas;
  } else if (is_other_number(text)) {
    ++column.other_numbers;
  }
}

/// Counts the cell as a number with a unit if the column is listed in `numbers`.
Cell count_cell_of(const CellReader& cells, std::string_view text, ColumnProfile& column) {
  if (!column.spelled) {
    count_text(cells, text, column.counts);
    return cells.read(text);
  }
  count_spelled(cells, text, column.counts);
  return read_spelled(cells, text).cell;
}

void note_cell(const CellReader& cells, std::string_view text, bool first_row,
               ColumnProfile& column) {
  const Cell cell = count_cell_of(cells, text, column);
  if (cell.kind == Cell::Kind::kMissing) {
    if (!cells.is_missing_text(text)) ++column.marks[std::string(text)];
    return;
  }
  note_target_value(cell, text, column.values);
  if (cell.kind == Cell::Kind::kText) {
    note_text(text, column);
    if (column.others.size() <= kCodesMax) column.others.emplace(text);
  }
  if (cell.is_number()) column.order.add(cell.value, first_row);
  const bool all = column.counts.texts > 0 || column.may_identify_rows;
  const size_t kept_max = all ? static_cast<size_t>(kCategoriesMax) + 1 : kNumbersKeptMax;
  if (column.texts.size() < kept_max) column.texts.emplace(text);
}

size_t index_of(const TableProfile& table, const std::string& name) {
  if (name.empty()) return SIZE_MAX;
  const auto found = std::ranges::find(table.columns, name, &ColumnProfile::name);
  return static_cast<size_t>(found - table.columns.begin());
}

/// Adds the columns that the table has more of than before: all, or those that a row of JSON lines
/// brought.
void add_columns(const CsvOptions& options, const std::vector<std::string>& names,
                 TableProfile& table) {
  for (size_t i = table.columns.size(); i < names.size(); ++i) {
    ColumnProfile& column = table.columns.emplace_back();
    column.name = names[i];
    column.spelled = std::ranges::find(options.numbers, names[i]) != options.numbers.end();
    column.may_identify_rows = may_name_rows(names[i]);
  }
}

}  // namespace

ColumnFacts ColumnProfile::facts(int64_t rows) const {
  ColumnFacts facts;
  facts.kind = ColumnFacts::Kind::kCategorical;
  facts.name = name;
  facts.rows = rows;
  facts.missing = rows - present();
  facts.distinct = std::ssize(texts);
  facts.example = example;
  facts.dates = dates > 0 && dates == present() && date_orders != 0;
  facts.words_mean = words_mean();
  return facts;
}

bool ColumnProfile::has_other_dates() const {
  return texts.size() > kCodesMax && is_nearly_all(other_dates, counts.texts);
}

bool ColumnProfile::has_other_numbers() const {
  return texts.size() > kCodesMax && is_nearly_all(other_numbers + decimal_commas, counts.texts);
}

bool ColumnProfile::has_decimal_commas() const {
  return is_nearly_all(decimal_commas, counts.texts);
}

void NumberOrder::add(double value, bool first_row) {
  const bool counts = last ? value == *last + 1 : first_row && (value == 0 || value == 1);
  counts_rows = counts_rows && counts;
  rises = rises && (!last || value > *last);
  never_falls = never_falls && (!last || value >= *last);
  last = value;
}

bool ColumnProfile::identifies_rows() const {
  constexpr double kNearlyAll = 0.99;
  if (counts.numbers != present() || !counts.whole || present() < kRowsToJudge) return false;
  if (counts.missing == 0 && order.counts_rows && !may_count_up(name)) return true;
  if (!may_identify_rows) return false;
  const auto most = static_cast<double>(std::min(present(), kCategoriesMax));
  return static_cast<double>(texts.size()) >= kNearlyAll * most;
}

Result<TableProfile> profile_columns(const CsvOptions& options, const std::filesystem::path& path,
                                     bool target_is_text) {
  ASSIGN_OR_RETURN(const std::unique_ptr<ByteSource> source, open_file_source(path, "data"));
  ASSIGN_OR_RETURN(const std::unique_ptr<TableReader> rows, open_table(options, *source, "data"));
  CellReader cells(options.missing, options.number_style());
  if (target_is_text) cells.read_target_as_text();
  TableProfile table;
  std::vector<std::string_view> fields;
  for (;;) {
    const std::vector<std::string>& names = rows->names();
    add_columns(options, names, table);
    ASSIGN_OR_RETURN(const bool more, rows->next(fields));
    if (!more) break;
    add_columns(options, rows->names(), table);
    if (fields.size() != table.columns.size()) continue;
    if (is_skipped(options, cells, fields, index_of(table, options.target))) continue;
    ++table.rows;
    for (size_t i = 0; i < fields.size(); ++i) {
      note_cell(cells, fields[i], table.rows == 1, table.columns[i]);
    }
  }
  for (ColumnProfile& column : table.columns) column.counts.missing = table.rows - column.present();
  return table;
}

}  // namespace trainyard::init
