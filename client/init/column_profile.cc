#include "client/init/column_profile.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <memory>

#include "src/base/text.h"
#include "src/data/limits.h"
#include "src/data/table/csv_cell.h"
#include "src/data/table/date.h"
#include "src/data/table/number_spelling.h"
#include "src/data/table/table_reader.h"

namespace trainyard::init {
namespace {

// a column with at most this many different texts may hold names of ranges, such as "18-25"
constexpr size_t kCodesMax = 20;

bool is_nearly_all(int64_t part, int64_t all) {
  return all > 0 && static_cast<double>(part) >= 0.9 * static_cast<double>(all);
}

// The number of different numbers that are kept in case the column turns out to hold text.
constexpr size_t kNumbersKeptMax = 64;

// Names of targets, the most likely first, without marks: "Sale Price", "sale_price" and
// "SalePrice" are the same name.
constexpr std::array<std::string_view, 34> kTargetNames = {
    "target",      "label",    "labels",           "outcome",   "survived", "species", "diagnosis",
    "churn",       "churned",  "default",          "fraud",     "isfraud",  "price",   "saleprice",
    "sentiment",   "spam",     "returned",         "converted", "class",    "variety", "quality",
    "mpg",         "medv",     "medianhousevalue", "charges",   "income",   "salary",  "rings",
    "progression", "category", "response",         "result",    "output",   "y"};

size_t target_rank(std::string_view name) {
  std::string letters = lower(name);
  std::erase_if(letters, [](unsigned char c) { return std::isalnum(c) == 0; });
  return static_cast<size_t>(std::ranges::find(kTargetNames, letters) - kTargetNames.begin());
}

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

void note_text(std::string_view text, ColumnProfile& column) {
  if (column.example.empty()) column.example = text;
  column.words += count_words(text);
  if (const DateOrders orders = possible_orders(text); orders != 0) {
    ++column.dates;
    column.date_orders = static_cast<DateOrders>(column.date_orders & orders);
  } else if (is_other_date(text)) {
    ++column.other_dates;
  } else if (has_decimal_comma(text)) {
    ++column.decimal_commas;
  } else if (is_other_number(text)) {
    ++column.other_numbers;
  }
}

void note_cell(const CellReader& cells, std::string_view text, ColumnProfile& column) {
  const Cell cell = column.spelled ? read_spelled(cells, text).cell : cells.read(text);
  if (column.spelled) {
    count_spelled(cells, text, column.counts);
  } else {
    count_text(cells, text, column.counts);
  }
  if (cell.kind == Cell::Kind::kMissing) {
    if (!cells.is_missing_text(text)) ++column.marks[std::string(text)];
    return;
  }
  note_target_value(cell, text, column.values);
  if (cell.kind == Cell::Kind::kText) {
    note_text(text, column);
    if (column.others.size() <= kCodesMax) column.others.emplace(text);
  }
  const bool all = column.counts.texts > 0 || is_identifier_name(column.name);
  const size_t kept_max = all ? static_cast<size_t>(kCategoriesMax) + 1 : kNumbersKeptMax;
  if (column.texts.size() < kept_max) column.texts.emplace(text);
}

/// Returns whether a column can be a target: its values are neither all equal nor all different.
bool is_fit_for_target(const ColumnProfile& column, int64_t rows) {
  if (column.values.size() < 2 || is_identifier_name(column.name)) return false;
  if (column.numeric()) return true;
  return !find_column_trap(column.facts(rows));
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

bool ColumnProfile::counts_rows() const {
  constexpr double kNearlyAll = 0.99;
  if (!is_identifier_name(name) || counts.numbers != present() || !counts.whole) return false;
  if (present() < kRowsToJudge) return false;
  const auto most = static_cast<double>(std::min(present(), kCategoriesMax));
  return static_cast<double>(texts.size()) >= kNearlyAll * most;
}

Result<TableProfile> profile_columns(const CsvOptions& options, const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(const std::unique_ptr<ByteSource> source, open_file_source(path, "data"));
  ASSIGN_OR_RETURN(const std::unique_ptr<TableReader> rows, open_table(options, *source, "data"));
  const CellReader cells(options.missing, options.number_style());
  TableProfile table;
  std::vector<std::string_view> fields;
  for (;;) {
    const std::vector<std::string>& names = rows->names();
    for (size_t i = table.columns.size(); i < names.size(); ++i) {
      table.columns.emplace_back().name = names[i];
      table.columns.back().spelled =
          std::ranges::find(options.numbers, names[i]) != options.numbers.end();
    }
    ASSIGN_OR_RETURN(const bool more, rows->next(fields));
    if (!more) break;
    for (size_t i = table.columns.size(); i < rows->names().size(); ++i) {
      table.columns.emplace_back().name = rows->names()[i];
      table.columns.back().spelled =
          std::ranges::find(options.numbers, rows->names()[i]) != options.numbers.end();
    }
    if (fields.size() != table.columns.size()) continue;
    ++table.rows;
    for (size_t i = 0; i < fields.size(); ++i) note_cell(cells, fields[i], table.columns[i]);
  }
  for (ColumnProfile& column : table.columns) column.counts.missing = table.rows - column.present();
  return table;
}

bool is_target_name(std::string_view name) { return target_rank(name) < kTargetNames.size(); }

std::optional<size_t> choose_target(const TableProfile& table) {
  std::optional<size_t> best;
  for (size_t i = 0; i < table.columns.size(); ++i) {
    const ColumnProfile& column = table.columns[i];
    if (!is_fit_for_target(column, table.rows)) continue;
    // If two columns have equal rank, such as two without a typical name, the last one is chosen.
    if (!best || target_rank(column.name) <= target_rank(table.columns[*best].name)) best = i;
  }
  return best;
}

}  // namespace trainyard::init
