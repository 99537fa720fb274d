#include "client/init/table_shape.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "src/data/files/text_files.h"
#include "src/data/schema.h"
#include "src/data/table/csv_cell.h"
#include "src/data/table/csv_reader.h"
#include "src/data/table/separators.h"

namespace trainyard::init {
namespace {

constexpr size_t kRecordsExamined = 200;
// A header that consists of numbers is recognized only above at least this many records.
constexpr size_t kRecordsBelowMin = 3;

struct Record {
  std::vector<std::string> fields;
  int64_t line = 0;
};
using Records = std::vector<Record>;

/// Reads the first records. The last one has no fields if it is malformed with this delimiter.
Records read_records(char delimiter, std::string_view text) {
  const std::unique_ptr<ByteSource> source = open_plain_source(text);
  CsvReader reader(*source, delimiter, "data");
  std::vector<std::string_view> fields;
  Records records;
  while (records.size() < kRecordsExamined) {
    const Result<bool> more = reader.next(fields);
    if (more.ok() && !*more) break;
    records.emplace_back();
    if (!more.ok()) break;
    records.back() = {{fields.begin(), fields.end()}, reader.line()};
  }
  return records;
}

/// Returns the line of the first record with `width` fields if all before it have fewer; else 0.
/// A header may have one field less than the rows.
int64_t find_table_line(const Records& records, size_t width) {
  const auto first =
      std::ranges::find_if(records, [&](const Record& r) { return r.fields.size() == width; });
  const auto before = first - records.begin();
  if (before == 0 || (before == 1 && records[0].fields.size() + 1 == width)) return 0;
  const bool fewer =
      std::all_of(records.begin(), first, [&](const Record& r) { return r.fields.size() < width; });
  return fewer ? first->line : 0;
}

/// Returns the shape of the records if `delimiter` separates their fields.
TableShape shape_by(char delimiter, const Records& records) {
  std::map<size_t, size_t> sizes;
  for (const Record& record : records) {
    if (!record.fields.empty()) ++sizes[record.fields.size()];
  }
  TableShape shape;
  shape.delimiter = delimiter;
  shape.records = records.size();
  const auto most = std::ranges::max_element(sizes, {}, [](const auto& s) { return s.second; });
  if (most == sizes.end()) return shape;
  shape.fields = most->first;
  shape.agreeing = static_cast<double>(most->second) / static_cast<double>(shape.records);
  shape.table_line = find_table_line(records, shape.fields);
  return shape;
}

// --- header ------------------------------------------------------------------------------------

const CellReader& cells() {
  static const CellReader reader(DatasetSchema{}.missing_values);
  return reader;
}

/// Returns whether the fields may be names: different texts, of which the first may be empty, as
/// pandas writes its index column without a name.
bool are_names(const std::vector<std::string>& fields) {
  std::set<std::string_view> seen;
  for (size_t i = 0; i < fields.size(); ++i) {
    const bool index = fields[i].empty() && i == 0 && fields.size() > 1;
    if (index) continue;
    if (cells().read(fields[i]).kind != Cell::Kind::kText || !seen.insert(fields[i]).second) {
      return false;
    }
  }
  return true;
}

bool has_text_above_number(const Records& records) {
  const std::vector<std::string>& first = records[0].fields;
  const std::vector<std::string>& second = records[1].fields;
  for (size_t i = 0; i < std::min(first.size(), second.size()); ++i) {
    if (cells().read(first[i]).kind == Cell::Kind::kText && cells().read(second[i]).is_number()) {
      return true;
    }
  }
  return false;
}

/// Returns the record's whole numbers in these columns; nullopt unless all of them are.
std::optional<std::vector<double>> whole_numbers(const std::vector<std::string>& fields,
                                                 const std::vector<size_t>& columns) {
  std::vector<double> numbers;
  for (const size_t i : columns) {
    if (i >= fields.size()) return std::nullopt;
    const Cell cell = cells().read(fields[i]);
    if (!cell.is_whole()) return std::nullopt;
    numbers.push_back(cell.value);
  }
  return numbers;
}

/// Returns whether the numbers may be years that name columns.
bool are_years(const std::vector<double>& numbers) {
  constexpr double kFirst = 1500, kLast = 2200;
  const std::set<double> different(numbers.begin(), numbers.end());
  return !numbers.empty() && different.size() == numbers.size() && *different.begin() >= kFirst &&
         *different.rbegin() <= kLast;
}

/// Returns whether the numbers may count columns: at least three, in equal steps.
bool are_steps(const std::vector<double>& numbers) {
  if (numbers.size() < 3 || numbers[1] == numbers[0]) return false;
  for (size_t i = 2; i < numbers.size(); ++i) {
    if (numbers[i] - numbers[i - 1] != numbers[1] - numbers[0]) return false;
  }
  return true;
}

/// Returns whether texts and numbers of the first record are names such as "country,1970,1971" or
/// "0,1,2": its numbers are years or count the columns, and those below do not.
bool has_numbers_as_names(const Records& records) {
  if (records.size() <= kRecordsBelowMin) return false;
  const std::vector<std::string>& first = records[0].fields;
  std::vector<size_t> columns;
  std::vector<std::string> texts;
  for (size_t i = 0; i < first.size(); ++i) {
    if (cells().read(first[i]).is_number()) {
      columns.push_back(i);
    } else {
      texts.push_back(first[i]);
    }
  }
  const std::optional<std::vector<double>> numbers = whole_numbers(first, columns);
  if (!numbers || (!texts.empty() && !are_names(texts) && texts != std::vector<std::string>{""})) {
    return false;
  }
  for (const auto is_series : {are_years, are_steps}) {
    if (!is_series(*numbers)) continue;
    return std::none_of(records.begin() + 1, records.end(), [&](const Record& record) {
      const auto below = whole_numbers(record.fields, columns);
      return below && is_series(*below);
    });
  }
  return false;
}

/// Returns whether texts of the first record occur again below in at least two columns, as values
/// do and names do not.
bool has_values_first(const Records& records) {
  const std::vector<std::string>& first = records[0].fields;
  size_t again = 0;
  for (size_t i = 0; i < first.size(); ++i) {
    again +=
        !first[i].empty() && std::any_of(records.begin() + 1, records.end(),
                                         [&](const Record& r) {
                                           return i < r.fields.size() && r.fields[i] == first[i];
                                         })
            ? 1
            : 0;
  }
  return again >= 2;
}

/// Returns whether the first record holds column names. It certainly does if a text is above a
/// number. Otherwise a number in it means that it does not, unless it is a year or counts the
/// columns; and so does a text that is repeated, in it or below it.
bool has_header(Records records, bool ends_in_record) {
  if (records.empty() || records[0].fields.empty()) return true;
  std::vector<std::string>& first = records[0].fields;
  // The text may end within the last field.
  if (ends_in_record && records.size() == 1 && first.size() > 1) first.pop_back();
  if (records.size() == 1) return are_names(first);
  if (has_text_above_number(records) || has_numbers_as_names(records)) return true;
  return !has_values_first(records) && are_names(first);
}

}  // namespace

TableShape find_table_shape(std::string_view text) {
  TableShape best;
  Records of_best;
  const auto rank = [](const TableShape& s) {
    return std::pair(s.fields > 1 ? s.agreeing : -1, s.fields);
  };
  const auto consider = [&](char delimiter) {
    Records records = read_records(delimiter, text);
    const TableShape shape = shape_by(delimiter, records);
    if (best.records > 0 && rank(shape) <= rank(best)) return;
    best = shape;
    of_best = std::move(records);
  };
  std::string_view content = text;
  if (content.starts_with(kByteOrderMark)) content.remove_prefix(kByteOrderMark.size());
  if (const std::optional<SeparatorLine> line = find_separator_line(content)) {
    consider(line->delimiter);
  } else {
    for (const Separator& separator : kSeparators) consider(separator.character);
  }
  best.header = has_header(std::move(of_best), !text.ends_with('\n'));
  return best;
}

bool has_quoted_lines(std::string_view text) {
  for (const Separator& separator : kSeparators) {
    const Records records = read_records(separator.character, text);
    const bool all = std::ranges::all_of(records, [&](const Record& record) {
      return record.fields.size() == 1 &&
             record.fields[0].find(separator.character) != std::string::npos;
    });
    if (all && records.size() > 1 && text.starts_with('"')) return true;
  }
  return false;
}

}  // namespace trainyard::init
