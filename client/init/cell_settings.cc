#include "client/init/cell_settings.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <set>
#include <string_view>

#include "client/init/draft_parts.h"
#include "src/base/text.h"
#include "src/data/table/number_spelling.h"

namespace trainyard::init {
namespace {

using TextSet = std::set<std::string>;

/// Returns whether a text among numbers only says that there is none: "-", ".", "missing".
bool is_placeholder(std::string_view text) {
  static constexpr auto kWords = std::to_array<std::string_view>(
      {"missing", "unknown", "n.a.", "n.a", "nd", "n.d.", "not available", "not applicable",
       "not reported", "no data", "\xe2\x80\x93", "\xe2\x80\x94", "\xe2\x80\xa6"});
  const auto is_mark = [](char c) {
    return std::string_view(".-*_?/ ").find(c) != std::string_view::npos;
  };
  return std::ranges::all_of(text, is_mark) ||
         std::ranges::find(kWords, lower(text)) != kWords.end();
}

/// Returns whether NA may be one of the column's codes: all are two capital letters, as those of
/// countries and states, and NA is not much more frequent than the others are.
bool has_codes(const ColumnProfile& column, int64_t count) {
  if (count * std::ssize(column.texts) > 2 * column.present()) return false;
  const auto is_capital = [](char c) { return c >= 'A' && c <= 'Z'; };
  return std::ranges::all_of(column.texts, [&](const std::string& text) {
    return text.size() == 2 && std::ranges::all_of(text, is_capital);
  });
}

/// Returns whether a text such as "NA" among names means a missing value.
bool is_missing_name(const std::string& mark, int64_t count, const ColumnProfile& column) {
  return mark != "None" && !(mark == "NA" && has_codes(column, count));
}

std::vector<std::string> choose_missing(const TableProfile& table) {
  TextSet named, of_numbers;
  for (const ColumnProfile& column : table.columns) {
    if (column.numeric() && std::ranges::all_of(column.others, is_placeholder)) {
      named.insert(column.others.begin(), column.others.end());
    }
    const bool texts = !column.numeric() && column.counts.form() == CategoryForm::kTexts;
    for (const auto& [mark, count] : column.marks) {
      if (!texts) of_numbers.insert(mark);
      if (texts && is_missing_name(mark, count, column)) named.insert(mark);
    }
  }
  // The named texts replace the default ones, so those that occur among numbers are named too.
  if (!named.empty()) named.insert(of_numbers.begin(), of_numbers.end());
  return {named.begin(), named.end()};
}

std::vector<std::string_view> texts_of(const ColumnProfile& column) {
  return {column.texts.begin(), column.texts.end()};
}

bool reads_all(const ColumnProfile& column, const NumberStyle& style) {
  const CellReader cells(std::vector<std::string>(), style);
  return std::ranges::all_of(column.texts, [&](const std::string& text) {
    return read_spelled(cells, text).cell.is_number();
  });
}

/// Returns the style of the file's numbers, if all columns of numbers can be read with it.
std::optional<NumberStyle> choose_style(const TableProfile& table,
                                        const std::vector<std::optional<NumberSpelling>>& found) {
  NumberStyle style;
  bool chosen = false;
  for (const auto& spelling : found) {
    if (!spelling) continue;
    const NumberStyle& other = spelling->style;
    if (other.decimal == '.' && other.thousands.empty()) continue;
    if (!chosen) style.decimal = other.decimal;
    chosen = true;
    if (other.decimal == style.decimal && style.thousands.empty())
      style.thousands = other.thousands;
  }
  const bool fits = std::ranges::all_of(table.columns, [&](const ColumnProfile& column) {
    return column.counts.texts > 0 || column.counts.numbers == 0 || reads_all(column, style);
  });
  return fits ? std::optional(style) : std::nullopt;
}

void choose_numbers(const TableProfile& table, CsvOptions& csv) {
  std::vector<std::optional<NumberSpelling>> found;
  for (const ColumnProfile& column : table.columns) {
    found.push_back(column.counts.texts == 0 || column.dates > 0
                        ? std::nullopt
                        : find_spelling(texts_of(column), csv.delimiter));
    // JSON has numbers of its own, so only units can be among them.
    if (csv.json_lines && found.back() && !found.back()->style.thousands.empty())
      found.back().reset();
  }
  const NumberStyle style =
      csv.json_lines ? NumberStyle() : choose_style(table, found).value_or(NumberStyle());
  if (style.decimal == ',') csv.decimal = ",";
  csv.thousands = style.thousands;
  for (size_t i = 0; i < found.size(); ++i) {
    if (found[i] && found[i]->spelled && reads_all(table.columns[i], style)) {
      csv.numbers.push_back(table.columns[i].name);
    }
  }
}

std::string yaml_mark(const std::string& mark) { return "\"" + mark + "\""; }

/// Returns what the numbers of a column look like, for a comment: "$1,200".
std::string unit_text(const ColumnProfile& column) {
  return column.texts.empty() ? "" : "such as " + *std::ranges::min_element(column.texts);
}

}  // namespace

bool choose_cell_settings(const TableProfile& table, CsvOptions& csv) {
  csv.missing = choose_missing(table);
  choose_numbers(table, csv);
  return !csv.missing.empty() || !csv.decimal.empty() || !csv.thousands.empty() ||
         !csv.numbers.empty();
}

std::vector<DraftField> cell_fields(const TableProfile& table, const CsvOptions& csv) {
  std::vector<DraftField> fields;
  if (!csv.decimal.empty()) {
    fields.push_back({"decimal", yaml_mark(csv.decimal), "numbers have a decimal comma"});
  }
  if (!csv.thousands.empty()) {
    fields.push_back({"thousands", yaml_mark(csv.thousands), "the mark between three digits"});
  }
  if (!csv.missing.empty()) {
    fields.push_back({"missing", yaml_list(csv.missing), "missing values, besides empty cells"});
  }
  if (csv.numbers.empty()) return fields;
  DraftField numbers{"numbers", "", "numbers with a unit, a currency or parentheses"};
  for (const std::string& name : csv.numbers) {
    const auto column = std::ranges::find(table.columns, name, &ColumnProfile::name);
    numbers.items.push_back({ColumnNote::Use::kLearnedFrom, name,
                             column == table.columns.end() ? "" : unit_text(*column)});
  }
  fields.push_back(std::move(numbers));
  return fields;
}

}  // namespace trainyard::init
